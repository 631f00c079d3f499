//! The layout that the keys in the engine have: the first process states it, and any other one is refused.

use std::sync::atomic::Ordering;

use tollgate_base::error::{Fault, Result};

use crate::layout::FORMAT;
use crate::message::{Condition, Txn, TxnOperation};
use crate::shared_store::SharedStore;

impl SharedStore {
    /// The layout in the engine must be the one that we know. The first process writes it.
    pub(crate) fn check_format(&self) -> Result<()> {
        if self.is_known.load(Ordering::Relaxed) {
            return Ok(());
        }
        let key = self.layout.format();
        let found = self.called(self.client.txn(&Txn {
            compare: vec![Condition::absent(&key)],
            success: vec![TxnOperation::put(&key, FORMAT.to_string())],
            failure: vec![TxnOperation::get(&key)],
        }))?;
        if !found.succeeded {
            let format = found.found().flatten().next().unwrap_or_default();
            match str::from_utf8(&format.value).ok().and_then(|number| number.parse::<u32>().ok()) {
                Some(FORMAT) => {}
                Some(found) => return Err(Fault::other_format(key, found, FORMAT)),
                None => return Err(Fault::damaged(key.as_ref(), "it is not a number")),
            }
        }
        self.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }
}
