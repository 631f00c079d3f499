//! The overview of all tasks that the board shows: for each state the number of tasks and the first few.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::vault::state::State;
use tollgate::vault::store::NotATask;

use super::task_row::{TaskRow, rows, state_words};
use crate::site::Site;

/// The number of tasks that the board shows of each state: more than fit into a column, which can be scrolled.
const FIRST: usize = 20;

/// All states.
pub(super) struct Overview {
    pub(super) columns: Vec<OverviewColumn>,
    /// Files that cannot be tasks.
    pub(super) unfit: Vec<NotATask>,
}

/// One state.
pub(super) struct OverviewColumn {
    pub(super) state: State,
    pub(super) len: usize,
    rows: Vec<TaskRow>,
}

impl Overview {
    /// Reads it from the disk. `None` without a vault.
    pub(super) fn read(site: &Site) -> Result<Option<Self>> {
        let open = site.open()?;
        let Some(open) = open.as_ref() else { return Ok(None) };
        let Some(vault) = &open.vault else { return Ok(None) };
        let (mut columns, mut unfit, mut first) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(board) = site.board()? {
            for state in State::ALL {
                let column = board.column(state);
                unfit.extend_from_slice(&column.unfit);
                columns.push(OverviewColumn { state, len: column.len(), rows: Vec::new() });
                first.push(column.tasks().take(FIRST).cloned().collect::<Vec<_>>());
            }
        }
        for (column, listed) in columns.iter_mut().zip(&first) {
            column.rows = rows(vault, listed, open.gate.workspace().now());
        }
        Ok(Some(Self { columns, unfit }))
    }
}

impl OverviewColumn {
    pub(super) fn show(&self, now: Timestamp) -> Markup {
        let (name, none) = state_words(self.state);
        let rest = self.len.saturating_sub(self.rows.len());
        let all = format!("/tasks?state={}", self.state);
        html! {
            section.column data-state=(self.state) aria-labelledby=(format!("c-{}", self.state)) {
                h2 id=(format!("c-{}", self.state)) { (name) " " span.count { (self.len) } }
                @if self.rows.is_empty() {
                    p.none { (none) }
                } @else {
                    ul.tasks { @for row in &self.rows { li data-key=(row.key()) { (row.show(now)) } } }
                    @if rest > 0 {
                        p.more { a href=(all) { (rest) " more" span.unseen { " in " (name) } } }
                    }
                }
            }
        }
    }
}
