//! One page of the ledger: the newest lines that are wanted, or those before a known one.
//!
//! The cost does not grow with the ledger: a page that finds too little of what is wanted ends after a bounded look, and
//! says where the next one goes on.

use crate::error::{Fault, Result};

use super::{Ledger, Line};

/// So many lines are looked at for one page, wanted or not: some tens of milliseconds.
const LOOK: usize = 5_000;

/// Some lines of the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The lines, the newest first.
    pub lines: Vec<Line>,
    /// There are older ones: ask for those before this number. They need not be wanted ones.
    pub older: Option<u64>,
    /// How many lines on the way were damaged and are left out.
    pub damaged: usize,
}

impl Ledger {
    /// The newest lines that are wanted, at most `count`; of those before a number, if one is given.
    pub fn page(
        &self,
        count: usize,
        before: Option<u64>,
        mut wanted: impl FnMut(&Line) -> bool,
    ) -> Result<Page> {
        let mut page = Page::default();
        let mut last = None;
        for (looked, line) in self.newest_before(before.unwrap_or(u64::MAX))?.enumerate() {
            if looked == LOOK || page.lines.len() == count {
                page.older = last;
                break;
            }
            match line {
                Ok(line) => {
                    last = Some(line.seq);
                    if wanted(&line) {
                        page.lines.push(line);
                    }
                }
                Err(Fault::Damaged { .. }) => page.damaged += 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(page)
    }
}
