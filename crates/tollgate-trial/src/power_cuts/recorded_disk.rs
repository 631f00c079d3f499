//! A disk in memory that records every write and every flush, in order, and what can be left of that after a power cut.
//!
//! Certain is what was written before the last flush. Of all later writes, each sector may be on the disk or not,
//! independently of every other.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::chance::Chance;

const BLOCK: usize = 4096;

/// The first block of a disk, with the superblock of ext4.
const SUPERBLOCK: u64 = 4096;

/// The bytes of a disk. A block that is not in the map is zero.
#[derive(Clone, Default)]
pub(crate) struct Blocks(HashMap<u64, Arc<[u8; BLOCK]>>);

impl Blocks {
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut blocks = Self::default();
        let mut block = [0; BLOCK];
        for number in 0..file.metadata()?.len() / BLOCK as u64 {
            file.read_exact(&mut block)?;
            if block != [0; BLOCK] {
                blocks.0.insert(number, Arc::new(block));
            }
        }
        Ok(blocks)
    }

    /// Writes the disk to a file of this size, for a person to look at.
    pub(crate) fn save(&self, path: &Path, size: u64) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.set_len(size)?;
        for (number, block) in &self.0 {
            file.seek(SeekFrom::Start(number * BLOCK as u64))?;
            file.write_all(&block[..])?;
        }
        Ok(())
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for part in parts(offset, length) {
            if let Some(block) = self.0.get(&part.block) {
                bytes[part.at..part.at + part.length]
                    .copy_from_slice(&block[part.start..part.start + part.length]);
            }
        }
        bytes
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for part in parts(offset, bytes.len()) {
            let block = self.0.entry(part.block).or_insert_with(|| Arc::new([0; BLOCK]));
            Arc::make_mut(block)[part.start..part.start + part.length]
                .copy_from_slice(&bytes[part.at..part.at + part.length]);
        }
    }
}

/// The part of a read or write that is in one block.
struct Part {
    block: u64,
    /// Where it begins in the block.
    start: usize,
    /// Where it begins in the bytes of the call.
    at: usize,
    length: usize,
}

fn parts(offset: u64, length: usize) -> impl Iterator<Item = Part> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let place = offset + at as u64;
        let start = (place % BLOCK as u64) as usize;
        let part = Part { block: place / BLOCK as u64, start, at, length: (BLOCK - start).min(length - at) };
        at += part.length;
        (part.length > 0).then_some(part)
    })
}

/// What the kernel asked of the disk.
enum Request {
    Write { offset: u64, bytes: Vec<u8> },
    Flush,
}

/// How much of what was not flushed is on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Luck {
    Nothing,
    Everything,
    /// A random half of the sectors.
    Half,
    /// Almost every sector.
    Most,
}

/// One power cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// After this many requests.
    pub(crate) position: usize,
    pub(crate) luck: Luck,
    /// The disk writes this many bytes at once, or not at all.
    pub(crate) sector: usize,
    /// The disk forgets this many flushes. 0 for an honest disk.
    pub(crate) forgotten_flushes: usize,
}

/// A disk since the machine was started.
#[derive(Default)]
pub(crate) struct RecordedDisk {
    at_start: Blocks,
    now: Blocks,
    requests: Vec<(SystemTime, Request)>,
}

impl RecordedDisk {
    pub(crate) fn new(blocks: Blocks) -> Self {
        Self { at_start: blocks.clone(), now: blocks, requests: Vec::new() }
    }

    pub(crate) fn now(&self) -> &Blocks {
        &self.now
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.now.write(offset, bytes);
        self.requests.push((SystemTime::now(), Request::Write { offset, bytes: bytes.to_vec() }));
    }

    pub(crate) fn flush(&mut self) {
        self.requests.push((SystemTime::now(), Request::Flush));
    }

    /// The number of requests so far.
    pub(crate) fn position(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn flushes(&self) -> usize {
        self.requests.iter().filter(|(_, request)| matches!(request, Request::Flush)).count()
    }

    /// When the last request before this position came.
    pub(crate) fn time(&self, position: usize) -> SystemTime {
        position.checked_sub(1).map_or(SystemTime::UNIX_EPOCH, |last| self.requests[last].0)
    }

    /// What is on the disk after this power cut.
    pub(crate) fn after(&self, cut: &Cut, chance: &mut Chance) -> Blocks {
        let requests = &self.requests[..cut.position];
        let flushes = requests.iter().enumerate().rev().filter(|(_, (_, it))| matches!(it, Request::Flush));
        let certain = flushes.map(|(at, _)| at).nth(cut.forgotten_flushes).unwrap_or(0);
        let mut blocks = self.at_start.clone();
        for (number, (_, request)) in requests.iter().enumerate() {
            let Request::Write { offset, bytes } = request else { continue };
            if number < certain {
                blocks.write(*offset, bytes);
                continue;
            }
            // ext4 cannot be mounted with half of a superblock, whatever tollgate does.
            let unit = if *offset < SUPERBLOCK { cut.sector.max(4096) } else { cut.sector };
            for (sector, part) in bytes.chunks(unit).enumerate() {
                let is_written = match cut.luck {
                    Luck::Nothing => false,
                    Luck::Everything => true,
                    Luck::Half => chance.below(2) == 0,
                    Luck::Most => chance.below(10) > 0,
                };
                if is_written {
                    blocks.write(offset + (sector * unit) as u64, part);
                }
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(position: usize, luck: Luck) -> Cut {
        Cut { position, luck, sector: 512, forgotten_flushes: 0 }
    }

    /// Behind the superblock.
    const AT: u64 = 2 * SUPERBLOCK;

    /// One sector `a`, flushed; then eight sectors `b` and one `c`, not flushed.
    fn disk() -> RecordedDisk {
        let mut disk = RecordedDisk::default();
        disk.write(AT, &[b'a'; 512]);
        disk.flush();
        disk.write(AT + 4096 - 512, &[b'b'; 8 * 512]);
        disk.write(AT, &[b'c'; 512]);
        disk
    }

    #[test]
    fn bytes_are_read_as_they_were_written_across_blocks() {
        let mut blocks = Blocks::default();
        blocks.write(4000, &[7; 5000]);
        assert_eq!(blocks.read(3999, 5002), [vec![0], vec![7; 5000], vec![0]].concat());
    }

    #[test]
    fn what_was_flushed_is_on_the_disk_after_every_cut() {
        for luck in [Luck::Nothing, Luck::Half, Luck::Most, Luck::Everything] {
            for seed in 0..20 {
                let left = disk().after(&cut(3, luck), &mut Chance::new(seed, "disk"));
                assert_eq!(left.read(AT, 512), [b'a'; 512]);
            }
        }
    }

    #[test]
    fn the_superblock_is_there_or_not() {
        let mut disk = RecordedDisk::default();
        disk.write(0, &[b'a'; 4096]);
        for seed in 0..20 {
            let left = disk.after(&cut(1, Luck::Half), &mut Chance::new(seed, "disk")).read(0, 4096);
            assert!(left == [0; 4096] || left == [b'a'; 4096]);
        }
    }

    #[test]
    fn of_what_was_not_flushed_each_sector_is_there_or_not() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let left = disk().after(&cut(4, Luck::Half), &mut Chance::new(seed, "disk"));
            assert!([b'a', b'c'].contains(&left.read(AT, 1)[0]));
            let sectors = left.read(AT + 4096 - 512, 8 * 512);
            for sector in sectors.chunks(512) {
                assert!(sector == [0; 512] || sector == [b'b'; 512]);
            }
            seen.insert(sectors.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>());
        }
        assert!(seen.len() > 20, "{}", seen.len());
        let left = disk().after(&cut(4, Luck::Everything), &mut Chance::new(1, "disk"));
        assert_eq!(left.read(AT, 512), [b'c'; 512]);
    }

    #[test]
    fn a_disk_that_forgets_a_flush_loses_what_was_flushed() {
        let cut = Cut { forgotten_flushes: 1, ..cut(4, Luck::Nothing) };
        let left = disk().after(&cut, &mut Chance::new(1, "disk"));
        assert_eq!(left.read(AT, 512), [0; 512]);
    }
}
