//! The part of a file that a read returns.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::turn::Extent;

/// The part of a file that the caller wants. Line numbers start at one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// The whole file.
    #[default]
    Whole,
    /// A range of lines, both ends included. Without `to`, up to the end of the file.
    Lines {
        /// The first line.
        from: usize,
        /// The last line.
        to: Option<usize>,
    },
    /// The first lines.
    Head(usize),
    /// The last lines.
    Tail(usize),
}

/// Selects the wanted part from bytes that arrive in chunks, and notices whether it left any out.
pub(crate) struct Selection {
    part: Part,
    line: usize,
    /// The last lines, for [`Part::Tail`]. The newest one may be incomplete.
    tail: VecDeque<Vec<u8>>,
    left_out: bool,
}

impl Selection {
    pub(crate) fn new(part: Part) -> Self {
        Self { part, line: 1, tail: VecDeque::new(), left_out: false }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8], sink: &mut dyn Write) -> io::Result<()> {
        let (from, to) = match self.part {
            Part::Whole => return sink.write_all(chunk),
            Part::Lines { from, to } => (from, to.unwrap_or(usize::MAX)),
            Part::Head(count) => (1, count),
            Part::Tail(count) => {
                self.feed_tail(chunk, count);
                return Ok(());
            }
        };
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            if (from..=to).contains(&self.line) {
                sink.write_all(piece)?;
            } else {
                self.left_out = true;
            }
            self.line += usize::from(piece.ends_with(b"\n"));
        }
        Ok(())
    }

    fn feed_tail(&mut self, chunk: &[u8], count: usize) {
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            match self.tail.back_mut() {
                Some(line) if !line.ends_with(b"\n") => line.extend_from_slice(piece),
                _ => self.tail.push_back(piece.to_vec()),
            }
            while self.tail.len() > count {
                self.tail.pop_front();
                self.left_out = true;
            }
        }
    }

    /// Writes what was held back, and says whether anything was left out.
    pub(crate) fn finish(self, sink: &mut dyn Write) -> io::Result<Extent> {
        for line in &self.tail {
            sink.write_all(line)?;
        }
        Ok(if self.left_out { Extent::Part } else { Extent::Whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_chunks_does_not_matter() {
        let text = b"one\ntwo\n\nfour\nfive";
        let table = [
            (Part::Whole, "one\ntwo\n\nfour\nfive", Extent::Whole),
            (Part::Lines { from: 2, to: Some(3) }, "two\n\n", Extent::Part),
            (Part::Lines { from: 4, to: None }, "four\nfive", Extent::Part),
            (Part::Lines { from: 1, to: Some(5) }, "one\ntwo\n\nfour\nfive", Extent::Whole),
            (Part::Lines { from: 9, to: None }, "", Extent::Part),
            (Part::Head(1), "one\n", Extent::Part),
            (Part::Head(0), "", Extent::Part),
            (Part::Tail(2), "four\nfive", Extent::Part),
            (Part::Tail(0), "", Extent::Part),
            (Part::Tail(99), "one\ntwo\n\nfour\nfive", Extent::Whole),
        ];
        for (part, wanted, extent) in table {
            for size in 1..=text.len() {
                let mut selection = Selection::new(part);
                let mut got = Vec::new();
                for chunk in text.chunks(size) {
                    selection.feed(chunk, &mut got).unwrap();
                }
                assert_eq!(selection.finish(&mut got).unwrap(), extent, "{part:?} in chunks of {size}");
                assert_eq!(String::from_utf8(got).unwrap(), wanted, "{part:?} in chunks of {size}");
            }
        }
    }
}
