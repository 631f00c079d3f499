//! One page of the ledger: the newest lines that are wanted, or those before a known one.
//!
//! The cost does not grow with the ledger: a page that finds too few wanted lines ends after a bounded number of lines
//! and says where the next page goes on.

use crate::error::{Fault, Result};

use super::files::Ledger;
use super::line::Line;

/// The number of lines that are read for one page, wanted or not: some tens of milliseconds.
const LOOK: usize = 5_000;

/// Some lines of the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The lines, the newest first.
    pub lines: Vec<Line>,
    /// There are older lines, wanted or not: ask for those before this number.
    pub older: Option<u64>,
    /// The number of damaged lines that were left out.
    pub damaged: usize,
}

impl Ledger {
    /// The newest wanted lines, at most `count`; with `before`, of those before that number.
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
