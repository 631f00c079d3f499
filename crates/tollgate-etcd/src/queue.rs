//! The queue, page by page, from its index in the engine.
//!
//! A step writes and deletes the keys of the index in its own transaction. Other programs do not: what they put into the queue
//! is in no page and is found by a scan, and what they took from it is dropped from the index when a page comes to it.
//!
//! Invariant: a page shows only tasks that wait, each in its place.

use tollgate_base::error::Result;
use tollgate_vault::brief::{Brief, UNREADABLE};
use tollgate_vault::store::QueuePage;

use crate::inside::Inside;
use crate::layout::Layout;
use crate::message::{Act, Condition, KeyValue, Range, Txn};
use crate::named::{CachedTask, Named};

/// etcd takes 128 acts in one transaction.
const ACTS: usize = 100;

/// How many marks a page goes to: some 250 keys, so it rarely has fewer tasks than it could have.
const MARKS: usize = 4;

/// Puts a key into the index, with its mark if it has one.
pub(crate) fn enter<'a>(layout: &Layout, key: &'a str) -> impl Iterator<Item = Act> + use<'a> {
    [key.to_owned()].into_iter().chain(layout.mark_of(key)).map(|key| Act::put(key, b""))
}

/// Takes a key out of the index.
pub(crate) fn leave<'a>(layout: &Layout, key: &'a str) -> impl Iterator<Item = Act> + use<'a> {
    [key.to_owned()].into_iter().chain(layout.mark_of(key)).map(Act::delete)
}

impl Inside {
    /// The part of the index after a cursor, up to some marks, and these marks if there may be more after them. `None` if the
    /// index is not complete.
    pub(crate) fn queue_part(&self, after: &str) -> Result<Option<(Range, Vec<KeyValue>)>> {
        let behind = |prefix: &str| match after {
            "" => Range::all(prefix),
            after => {
                Range { from: [prefix.as_bytes(), after.as_bytes(), &[0]].concat(), ..Range::all(prefix) }
            }
        };
        let (queue, marks) = (self.layout.queue(), self.layout.marks());
        let marked = Range { limit: MARKS, ..behind(&marks) };
        let mut found = self.act(vec![Act::get(self.layout.queued()), Act::range(&marked)])?.found();
        if found.next().is_none_or(|kvs| kvs.is_empty()) {
            return Ok(None);
        }
        let found = found.next().filter(|found| found.len() == MARKS).unwrap_or_default();
        let mut range = behind(&queue);
        if let Some(last) = found.last() {
            range.end = [queue.as_bytes(), &last.key[marks.len()..], &[0]].concat();
        }
        Ok(Some((range, found)))
    }

    /// At most this many tasks after a cursor; `None` if the index has no more.
    pub(crate) fn queue_page(&self, after: &str, limit: usize) -> Result<Option<QueuePage>> {
        let Some((range, marks)) = self.queue_part(after)? else {
            self.index_everything()?;
            return self.queue_page(after, limit);
        };
        let prefix = self.layout.queue();
        let keys = self.called(self.client.range(&Range { limit: limit.min(ACTS), ..range }))?.kvs;
        if let Some(last) = marks.last().filter(|_| keys.is_empty()) {
            // An earlier tollgate took these tasks out of the index.
            self.act(marks.iter().map(|mark| Act::delete(&mark.key)).collect())?;
            let last = String::from_utf8_lossy(&last.key[self.layout.marks().len()..]).into_owned();
            return self.queue_page(&last, limit);
        }
        let Some(next) =
            keys.last().map(|last| String::from_utf8_lossy(&last.key[prefix.len()..]).into_owned())
        else {
            return Ok(None);
        };
        let listed: Vec<_> =
            keys.into_iter().filter_map(|kv| Some((self.layout.read_queue(&kv.key)?, kv.key))).collect();
        let look = |((name, _), _): &_| Act::get_all(&self.layout.opens(name));
        let answer = self.act(listed.iter().map(look).collect())?;
        let (looked, found) = (answer.header.revision, answer.found());
        let mut page = QueuePage { next: Some(next), ..QueuePage::default() };
        for (((name, slot), key), found) in listed.iter().zip(found) {
            let named = Named::read(&self.layout, found);
            let task = named.in_slot(slot);
            let place = task.and_then(|task| self.place(task));
            match task {
                Some(task) if place.as_deref().is_some_and(|place| place.as_bytes() == key) => {
                    page.tasks.push(task.summary());
                }
                _ => {
                    let as_seen = match task {
                        Some(task) => {
                            Condition::at(self.layout.task(name, slot, &task.seen.id), task.seen.revision)
                        }
                        None => Condition::unchanged_since(&self.layout.opens(name), looked),
                    };
                    self.correct(key, as_seen, place)?;
                }
            }
        }
        Ok(Some(page))
    }

    /// The key of a task in the index.
    fn place(&self, task: &CachedTask) -> Option<String> {
        let summary = task.summary();
        let urgency = summary.brief.as_ref().map_or_else(|_| UNREADABLE.to_owned(), Brief::urgency);
        self.layout.in_queue(&task.name, &task.slot, &urgency, summary.modified)
    }

    /// Takes a wrong key out of the index and puts the right one in, if its task is as it was seen.
    fn correct(&self, wrong: &[u8], as_seen: Condition, right: Option<String>) -> Result<()> {
        let compare = vec![as_seen];
        let put = right.iter().flat_map(|key| enter(&self.layout, key));
        let success = leave(&self.layout, &String::from_utf8_lossy(wrong)).chain(put).collect();
        self.called(self.client.txn(&Txn { compare, success, failure: Vec::new() }))?;
        Ok(())
    }

    /// Makes the index of a vault that an earlier tollgate has made.
    fn index_everything(&self) -> Result<()> {
        self.each_page(Range::all(&self.layout.open_tasks()), |answer, _| {
            let places: Vec<_> = answer.kvs.iter().filter_map(|kv| Some((kv, self.place_of(kv)?))).collect();
            places.chunks(ACTS).try_for_each(|some| self.put_places(some))
        })?;
        self.act(vec![Act::put(self.layout.queued(), b"")]).map(drop)
    }

    fn place_of(&self, kv: &KeyValue) -> Option<String> {
        self.place(&CachedTask::new(&self.layout, kv, usize::MAX)?)
    }

    /// Puts tasks into the index, unless they have changed.
    fn put_places(&self, places: &[(&KeyValue, String)]) -> Result<()> {
        let compare = places.iter().map(|(kv, _)| Condition::at(&kv.key, kv.mod_revision)).collect();
        let success = places.iter().flat_map(|(_, place)| enter(&self.layout, place)).collect();
        let answer = self.called(self.client.txn(&Txn { compare, success, failure: Vec::new() }))?;
        if answer.succeeded || places.len() < 2 {
            return Ok(());
        }
        // One of them has changed, and its step has changed the index.
        let (one, other) = places.split_at(places.len() / 2);
        self.put_places(one)?;
        self.put_places(other)
    }
}
