//! The queue, page by page, from its index in the database.
//!
//! Invariant: a page shows every task after its cursor. Tasks without an urgency are in no place yet, so they get one before
//! any page is shown.

use jiff::Timestamp;
use tokio_postgres::Row;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;
use tollgate_vault::brief::{HEAD, UNREADABLE, urgency_of};
use tollgate_vault::state::Slot;
use tollgate_vault::store::QueuePage;

use crate::link::Failure;
use crate::listing::summary;
use crate::pool::{AnswerTime, DbLinks};

/// The number of tasks in a small and in a large page. They are part of the statements: a plan for any number of tasks might
/// read all of them.
const SMALL: usize = 16;
const LARGE: usize = 512;

/// Tasks without an urgency, and those after a place of the index. The first columns are those of a listing.
macro_rules! page {
    ($limit:literal) => {
        concat!(
            "select 0::bigint, 0::bigint, id, name, state, agent, version, substring(text for $1),
                modified_at, urgency
            from (
                (select * from tasks where state in ('Needs_Action', 'Approved') and urgency is null limit 1000)
                union all
                (select * from tasks where state in ('Needs_Action', 'Approved') and urgency is not null
                    and (urgency, modified_at, name collate \"C\", state collate \"C\")
                        > ($2, $3, $4, $5)
                    order by urgency, modified_at, name collate \"C\", state collate \"C\" limit ",
            $limit,
            ")
            ) t order by urgency nulls first, modified_at, name collate \"C\", state collate \"C\""
        )
    };
}

const SMALL_PAGE: &str = page!("16");
const LARGE_PAGE: &str = page!("512");

/// Gives tasks their urgency, unless they have changed since.
const RANK: &str = "update tasks t set urgency = new.urgency
    from unnest($1::bigint[], $2::bigint[], $3::text[]) new (id, version, urgency)
    where t.id = new.id and t.version = new.version
        and t.state in ('Needs_Action', 'Approved') and t.urgency is null";

/// Whether tasks in this slot are in the queue.
pub(crate) fn waits(slot: &Slot) -> bool {
    slot.state().is_claimable()
}

/// At most this many tasks after a cursor.
pub(crate) fn page(links: &DbLinks, after: &str, limit: usize) -> Result<QueuePage> {
    let foreign = || Fault::invalid(format!("`{}` is not a cursor of this queue", after.escape_debug()));
    let place = QueueCursor::read(after).ok_or_else(foreign)?;
    let (sql, most) = if limit <= SMALL { (SMALL_PAGE, SMALL) } else { (LARGE_PAGE, LARGE) };
    let head = i32::try_from(HEAD).unwrap_or(i32::MAX);
    let rows = loop {
        let read = links.call(
            sql,
            &[&head, &place.urgency, &place.modified, &place.name, &place.state],
            AnswerTime::Whole,
        );
        let rows = read.map_err(Failure::fault)?;
        let without: Vec<&Row> = rows.iter().filter(|row| row.get::<_, Option<&str>>(9).is_none()).collect();
        if without.is_empty() {
            break rows;
        }
        rank(links, &without)?;
    };
    let shown = &rows[..rows.len().min(limit)];
    let is_last = rows.len() < most && shown.len() == rows.len();
    let mut page = QueuePage {
        next: shown.last().filter(|_| !is_last).map(QueueCursor::text_of),
        ..QueuePage::default()
    };
    for row in shown {
        let state: &str = row.get(4);
        match summary(row, state.parse()?) {
            Ok(task) => page.tasks.push(task),
            Err(unfit) => page.unfit.push(unfit),
        }
    }
    Ok(page)
}

fn rank(links: &DbLinks, rows: &[&Row]) -> Result<()> {
    let ids: Vec<i64> = rows.iter().map(|row| row.get(2)).collect();
    let versions: Vec<i64> = rows.iter().map(|row| row.get(6)).collect();
    let urgency = |row: &&Row| match TaskName::of_file(row.get(3)) {
        Ok(_) => urgency_of(row.get(7)),
        Err(_) => UNREADABLE.to_owned(),
    };
    let urgencies: Vec<String> = rows.iter().map(urgency).collect();
    links.call(RANK, &[&ids, &versions, &urgencies], AnswerTime::Whole).map_err(Failure::fault)?;
    Ok(())
}

/// A place in the index.
struct QueueCursor<'a> {
    urgency: &'a str,
    modified: Timestamp,
    state: &'a str,
    name: &'a str,
}

impl<'a> QueueCursor<'a> {
    /// The place of a cursor; `None` if it is not one of this store. The empty one comes before every task.
    fn read(cursor: &'a str) -> Option<Self> {
        if cursor.is_empty() {
            return Some(Self { urgency: "", modified: Timestamp::UNIX_EPOCH, state: "", name: "" });
        }
        let mut parts = cursor.splitn(4, '/');
        let mut next = || parts.next();
        let (urgency, modified, state) =
            (next()?, Timestamp::from_microsecond(next()?.parse().ok()?).ok()?, next()?);
        Some(Self { urgency, modified, state, name: next()? })
    }

    fn text_of(row: &Row) -> String {
        // A person may have written a time that no clock shows. Then the next page begins after it.
        let modified: Timestamp = row.try_get(8).unwrap_or(Timestamp::MAX);
        let (urgency, modified): (&str, _) = (row.get(9), modified.as_microsecond());
        format!("{urgency}/{modified}/{}/{}", row.get::<_, &str>(4), row.get::<_, &str>(3))
    }
}
