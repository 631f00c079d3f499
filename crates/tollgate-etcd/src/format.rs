//! Which layout the keys in the engine have.
//!
//! In format 1 the key of a task ended with its slot, and its value was its head and its text. The first process that finds it
//! writes the number of today, so that commands of an earlier tollgate are refused, and that tasks are to be converted. Each is
//! converted by a transaction that compares it, so several processes may do so at the same time, and any of them may die.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_vault::state::Slot;

use crate::inside::Inside;
use crate::layout::{FORMAT, read_slot};
use crate::message::{Act, Condition, KeyValue, Range, Txn};

/// How many tasks one transaction converts. etcd takes 128 acts, and each task needs two.
const MOST_TASKS: usize = 50;

/// How many bytes of several tasks one transaction converts. etcd takes 1.5 MiB, and one task has at most 1 MiB.
const MOST_BYTES: usize = 400 << 10;

/// A task of format 1.
type OldTask<'a> = (&'a KeyValue, (TaskName, Slot));

impl Inside {
    /// The layout in the engine must be one that we know. The first process writes it.
    pub(crate) fn check_format(&self) -> Result<()> {
        if self.is_known.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (key, converting) = (self.layout.format(), self.layout.converting());
        let found = self.called(self.client.txn(&Txn {
            compare: vec![Condition::absent(&key)],
            // Nothing waits in a new vault.
            success: vec![Act::put(&key, FORMAT.to_string()), Act::put(self.layout.queued(), b"")],
            failure: vec![Act::get(&key), Act::get(&converting)],
        }))?;
        if !found.succeeded {
            let mut found = found.found().map(|kvs| kvs.into_iter().next());
            let (format, converts) = (found.next().flatten().unwrap_or_default(), found.next().flatten());
            match str::from_utf8(&format.value).ok().and_then(|number| number.parse::<u32>().ok()) {
                Some(FORMAT) if converts.is_none() => {}
                Some(FORMAT) => self.leave_format_1()?,
                Some(1) => {
                    let compare = vec![Condition::at(&key, format.mod_revision)];
                    let success = vec![Act::put(&key, FORMAT.to_string()), Act::put(&converting, b"")];
                    self.called(self.client.txn(&Txn { compare, success, failure: Vec::new() }))?;
                    return self.check_format();
                }
                Some(found) => {
                    return Err(Fault::NewerFormat { path: key.into(), found, known: FORMAT });
                }
                None => return Err(Fault::damaged(key.as_ref(), "it is not a number")),
            }
        }
        self.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn leave_format_1(&self) -> Result<()> {
        while !(self.convert(&self.layout.open_tasks())? & self.convert(&self.layout.final_tasks())?) {}
        self.act(vec![Act::delete(self.layout.converting())]).map(drop)
    }

    /// Brings all tasks below a prefix to the format of today. `false` if some have changed in the meantime.
    fn convert(&self, prefix: &str) -> Result<bool> {
        let mut is_complete = true;
        self.each_page(Range::all(prefix), |answer, _| {
            let old: Vec<_> =
                answer.kvs.iter().filter_map(|kv| Some((kv, format_1(&kv.key[prefix.len()..])?))).collect();
            // No transaction changes two tasks of one name.
            let mut names = HashSet::new();
            let (first, others): (Vec<_>, Vec<_>) = old.iter().partition(|(_, (name, _))| names.insert(name));
            let mut rest = &first[..];
            while !rest.is_empty() {
                let (some, more) = rest.split_at(number_that_fits(rest));
                is_complete &= self.convert_some(prefix, some)?;
                rest = more;
            }
            for one in others {
                is_complete &= self.convert_some(prefix, &[one])?;
            }
            Ok(())
        })?;
        Ok(is_complete)
    }

    fn convert_some(&self, prefix: &str, tasks: &[&OldTask<'_>]) -> Result<bool> {
        let mut txn = Txn::default();
        for (kv, (name, slot)) in tasks {
            txn.compare.push(Condition::at(&kv.key, kv.mod_revision));
            let value = [format!("{slot}\n").as_bytes(), &kv.value].concat();
            txn.success.push(Act::put(format!("{prefix}{name}/{}", StepId::new()?), value));
            txn.success.push(Act::delete(&kv.key));
        }
        Ok(self.called(self.client.txn(&txn))?.succeeded)
    }
}

/// How many of these fit into one transaction, but at least one.
fn number_that_fits(tasks: &[&OldTask<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |(kv, _): &&&OldTask<'_>| {
        bytes += kv.value.len();
        bytes <= MOST_BYTES
    };
    tasks.iter().take(MOST_TASKS).take_while(fits).count().max(1)
}

/// The name and the slot in a key of format 1.
fn format_1(key: &[u8]) -> Option<(TaskName, Slot)> {
    let (name, slot) = str::from_utf8(key).ok()?.split_once('/')?;
    Some((TaskName::of_file(name).ok()?, read_slot(slot)?))
}
