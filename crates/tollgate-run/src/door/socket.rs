//! The socket of a door.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::RecvFlags;

use super::carried_call::CarriedCall;
use crate::descriptors;

const SOCKET: &str = "door";

/// The longest call. The kernel allows a program no more arguments than that.
const LONGEST: usize = 6 << 20;

/// Opens the door in the folder of a run.
pub(crate) fn open(folder: &Path) -> io::Result<OwnedFd> {
    with_short_path(folder, |path| UnixListener::bind(path)).map(OwnedFd::from)
}

/// Makes a call through the door in this folder, with the streams of this process. Returns its exit code.
pub fn call(folder: &Path, call: &CarriedCall) -> io::Result<u8> {
    let mut door = with_short_path(folder, |path| UnixStream::connect(path))?;
    let text = call.encoded();
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    descriptors::send(&door, &length.to_ne_bytes(), &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
    door.write_all(&text)?;
    let mut code = [0];
    door.read_exact(&mut code)?;
    Ok(code[0])
}

/// Receives the call for which the front has started this process, and the three streams that it uses.
pub fn receive(door: &UnixStream) -> io::Result<(CarriedCall, [OwnedFd; 3])> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut length = [0; 4];
    let (read, files) = descriptors::receive(door, &mut length, RecvFlags::WAITALL)?;
    let files = files.try_into().map_err(|_| invalid())?;
    let length = u32::from_ne_bytes(length) as usize;
    if read != 4 || length > LONGEST {
        return Err(invalid());
    }
    let mut text = vec![0; length];
    (&*door).read_exact(&mut text)?;
    Ok((CarriedCall::decoded(&text).ok_or_else(invalid)?, files))
}

/// The path of a socket has at most 108 bytes, and that of a workspace may be longer.
fn with_short_path<T>(folder: &Path, use_it: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let open = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    use_it(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(SOCKET))
}
