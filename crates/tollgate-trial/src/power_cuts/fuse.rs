//! A file system with one file, the disk: each write and each flush of the file is recorded by [`RecordedDisk`].
//!
//! It speaks the kernel's FUSE protocol itself, as much of it as a loop device needs. One thread answers one request after
//! another, so the order of the record is the order in which the kernel can have relied on the answers. Discards are refused;
//! the kernel then writes zeros, or does without.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::recorded_disk::RecordedDisk;

/// The name of the file.
pub(crate) const DISK: &str = "disk";

/// The longest write in one request. The kernel's own limit without further negotiation.
const LONGEST: u32 = 128 << 10;

const ROOT: u64 = 1;
const FILE: u64 = 2;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// The length of the header of a request, and of the arguments of a read or write.
const HEADER: usize = 40;
const ARGUMENTS: usize = 40;

/// Mounts the file system and serves it until the process ends. The disk may be exchanged while nobody has the file open.
pub(crate) fn serve(folder: &Path, size: u64, disk: Arc<Mutex<RecordedDisk>>) -> io::Result<()> {
    let kernel = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", kernel.as_raw_fd());
    let options = CString::new(options)?;
    mount("power-cuts", folder, "fuse", MountFlags::NODEV | MountFlags::NOSUID, options.as_c_str())?;
    std::thread::spawn(move || {
        let mut server = Server { kernel, size, disk };
        while server.answer().is_ok() {}
    });
    Ok(())
}

struct Server {
    kernel: File,
    size: u64,
    disk: Arc<Mutex<RecordedDisk>>,
}

impl Server {
    /// Answers one request. Fails when the file system is unmounted.
    fn answer(&mut self) -> io::Result<()> {
        let mut request = vec![0; HEADER + ARGUMENTS + LONGEST as usize + 4096];
        let length = match self.kernel.read(&mut request) {
            Ok(length) => length,
            // The request was interrupted before it could be read.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        let (header, arguments) = request[..length].split_at(HEADER);
        let (operation, id, node) = (u32_at(header, 4), u64_at(header, 8), u64_at(header, 16));
        let answer = match operation {
            FORGET | BATCH_FORGET | INTERRUPT => return Ok(()),
            _ => self.result(operation, node, arguments),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let mut bytes = Vec::with_capacity(16 + body.len());
        bytes.extend_from_slice(&u32::try_from(16 + body.len()).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend_from_slice(&error.to_ne_bytes());
        bytes.extend_from_slice(&id.to_ne_bytes());
        bytes.extend_from_slice(&body);
        match self.kernel.write(&bytes) {
            // Nobody waits for this answer any more.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(()),
            written => written.map(drop),
        }
    }

    fn result(&self, operation: u32, node: u64, arguments: &[u8]) -> Result<Vec<u8>, Errno> {
        let disk = || self.disk.lock().map_err(|_| Errno::IO);
        match operation {
            INIT => Ok(init()),
            LOOKUP if node == ROOT && arguments == format!("{DISK}\0").as_bytes() => {
                // The node, its generation, and how long both are valid: not at all.
                let entry = [FILE, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
                Ok([entry, self.attributes(FILE)].concat())
            }
            LOOKUP => Err(Errno::NOENT),
            GETATTR => Ok([vec![0; 16], self.attributes(node)].concat()),
            OPEN => Ok(vec![0; 16]),
            FLUSH | RELEASE => Ok(Vec::new()),
            READ => Ok(disk()?.now().read(u64_at(arguments, 8), u32_at(arguments, 16) as usize)),
            WRITE => {
                let size = u32_at(arguments, 16);
                disk()?.write(u64_at(arguments, 8), &arguments[ARGUMENTS..][..size as usize]);
                Ok([size, 0].map(u32::to_ne_bytes).concat())
            }
            FSYNC => {
                disk()?.flush();
                Ok(Vec::new())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) = if node == FILE { (self.size, 0o100_600_u32) } else { (0, 0o040_700) };
        let mut bytes = [node, size, size / 512, 0, 0, 0].map(u64::to_ne_bytes).concat();
        // Three parts of times, mode, links, owner, group, device, block size, flags.
        bytes.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
        bytes
    }
}

/// The oldest protocol whose answer has today's length. The only option is that a write may be longer than a page.
fn init() -> Vec<u8> {
    let (major, minor, read_ahead, flags) = (7, 23, LONGEST, 1 << 5);
    let mut bytes = [major, minor, read_ahead, flags].map(u32::to_ne_bytes).concat();
    // At most 12 requests in the background, congested from 9 on: the kernel's own defaults.
    bytes.extend([12, 9].map(u16::to_ne_bytes).concat());
    // The longest write, and times in nanoseconds.
    bytes.extend([LONGEST, 1].map(u32::to_ne_bytes).concat());
    bytes.resize(64, 0);
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}
