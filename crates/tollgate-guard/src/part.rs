//! The part of a file that a read returns.

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
    /// The last lines, at most [`LARGEST_TAIL`] bytes.
    Tail(usize),
}

/// The size of the last lines together. They are held in memory until the end of the file is known, so a file that is one
/// endless line would fill it. A request for more is an error.
pub const LARGEST_TAIL: usize = 16 << 20;

/// Selects the wanted part from bytes that arrive in chunks, and notices whether it left any out.
pub(crate) struct Selection {
    part: Part,
    line: usize,
    /// The end of what has arrived, for [`Part::Tail`].
    tail: Vec<u8>,
    /// Bytes before `tail` were dropped because they were too many, not because they belong to earlier lines.
    cut: bool,
    left_out: bool,
    largest_tail: usize,
}

impl Selection {
    pub(crate) fn new(part: Part) -> Self {
        Self { part, line: 1, tail: Vec::new(), cut: false, left_out: false, largest_tail: LARGEST_TAIL }
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
        for piece in chunk.chunks(self.largest_tail) {
            self.tail.extend_from_slice(piece);
            // Not for every chunk, so that each byte is looked at a few times at most.
            if self.tail.len() >= 2 * self.largest_tail {
                self.trim_tail(count);
            }
        }
    }

    /// Drops what is not among the last lines, and then what is too much.
    fn trim_tail(&mut self, count: usize) {
        if let Some(start) = last_lines(&self.tail, count, self.cut) {
            self.left_out |= start > 0;
            self.tail.drain(..start);
            self.cut = false;
        }
        if self.tail.len() > self.largest_tail {
            self.tail.drain(..self.tail.len() - self.largest_tail);
            self.cut = true;
        }
    }

    /// Writes what was held back, and says whether anything was left out.
    pub(crate) fn finish(mut self, sink: &mut dyn Write) -> io::Result<Extent> {
        if let Part::Tail(count) = self.part {
            self.trim_tail(count);
            if self.cut {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            sink.write_all(&self.tail)?;
        }
        Ok(if self.left_out { Extent::Part } else { Extent::Whole })
    }
}

/// Where the last lines start. `None` if the bytes are the end of a longer text, and the lines start before them.
fn last_lines(bytes: &[u8], count: usize, is_cut: bool) -> Option<usize> {
    if count == 0 {
        return Some(bytes.len());
    }
    // The line end at the very end belongs to the last line.
    let body = &bytes[..bytes.len().saturating_sub(1)];
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match ends.map(|(at, _)| at + 1).nth(count - 1) {
        Some(start) => Some(start),
        None => (!is_cut).then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_take_a_limited_amount_of_memory() {
        let tail = |text: &str, count: usize, chunk: usize| {
            let mut selection = Selection { largest_tail: 8, ..Selection::new(Part::Tail(count)) };
            let mut got = Vec::new();
            for chunk in text.as_bytes().chunks(chunk) {
                selection.feed(chunk, &mut got).unwrap();
                assert!(selection.tail.len() <= 24, "{}", selection.tail.len());
            }
            let finished = selection.finish(&mut got);
            finished.map(|extent| (String::from_utf8(got).unwrap(), extent)).map_err(|error| error.kind())
        };
        let long = format!("{}\nab\ncd\n", "x".repeat(100));
        for chunk in 1..=long.len() {
            assert_eq!(tail(&long, 2, chunk), Ok(("ab\ncd\n".into(), Extent::Part)), "{chunk}");
            assert_eq!(tail(&long, 3, chunk), Err(io::ErrorKind::FileTooLarge), "{chunk}");
            assert_eq!(tail(&"\n".repeat(100), 5, chunk), Ok(("\n".repeat(5), Extent::Part)), "{chunk}");
            assert_eq!(tail(&"\n".repeat(100), 9, chunk), Err(io::ErrorKind::FileTooLarge), "{chunk}");
            assert_eq!(tail(&"x".repeat(100), 1, chunk), Err(io::ErrorKind::FileTooLarge), "{chunk}");
            assert_eq!(tail(&"x\n".repeat(50), 0, chunk), Ok((String::new(), Extent::Part)), "{chunk}");
        }
        assert_eq!(tail("abcdefgh", 3, 3), Ok(("abcdefgh".into(), Extent::Whole)));
    }

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
