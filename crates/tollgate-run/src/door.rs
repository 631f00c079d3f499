//! The door of a run: how `tollgate` inside a run reaches the state and the tasks, which the command itself cannot change.
//!
//! The process in front of the run listens at a socket in the folder of the run. `tollgate` inside connects, and passes its
//! arguments and its three streams. For each call the front starts `tollgate` outside, with its own environment: neither the
//! command's view, nor its filter, nor its variables apply there. The answer is the exit code.
//!
//! Who may do what is decided by the process that is started, which knows that it works for a run.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::RecvFlags;

use crate::descriptors;

/// The variable that tells a command the folder of its run.
pub const FOLDER_VARIABLE: &str = "TOLLGATE_RUN_FOLDER";

const SOCKET: &str = "door";

/// The folder in that of a run where `tollgate` in the view keeps state: what it does there becomes part of the run.
pub const INNER: &str = "inner";

/// The longest call. The kernel allows a program no more arguments than that.
const LONGEST: usize = 6 << 20;

/// A call of `tollgate` inside a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedCall {
    /// The folder in which it was made.
    pub folder: PathBuf,
    /// The variables that the call needs, and their values.
    pub variables: Vec<(OsString, OsString)>,
    /// Its arguments, without the program.
    pub arguments: Vec<OsString>,
}

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

impl CarriedCall {
    /// Parts that end with a zero, which none of them contains: the folder, the number of variables, each variable and its
    /// value, each argument.
    fn encoded(&self) -> Vec<u8> {
        let number = OsString::from(self.variables.len().to_string());
        let variables = self.variables.iter().flat_map(|(name, value)| [name, value]);
        let parts = [self.folder.as_os_str(), &number].into_iter();
        let parts = parts.chain(variables.chain(&self.arguments).map(OsString::as_os_str));
        parts.flat_map(|part| part.as_bytes().iter().chain(&[0])).copied().collect()
    }

    fn decoded(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(&[0])?;
        let mut parts = text.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
        let folder = parts.next()?.into();
        let number: usize = parts.next()?.to_str()?.parse().ok()?;
        let variables =
            (0..number).map(|_| Some((parts.next()?, parts.next()?))).collect::<Option<Vec<_>>>()?;
        Some(Self { folder, variables, arguments: parts.collect() })
    }
}

/// The path of a socket has at most 108 bytes, and that of a workspace may be longer.
fn with_short_path<T>(folder: &Path, use_it: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let open = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    use_it(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(OsStr::new(SOCKET)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_received_as_it_was_sent() {
        let word = |text: &str| OsString::from(text);
        for call in [
            CarriedCall { folder: "/w".into(), variables: Vec::new(), arguments: Vec::new() },
            CarriedCall {
                folder: "/w/a b".into(),
                variables: vec![(word("TOLLGATE_TURN"), word("")), (word("X"), word("=\n"))],
                arguments: vec![word("task"), word(""), OsString::from_vec(vec![0xff, b'\n'])],
            },
        ] {
            assert_eq!(CarriedCall::decoded(&call.encoded()), Some(call));
        }
        for bad in [&b""[..], b"/w", b"/w\0", b"/w\0x\0", b"/w\x001\0NAME\0"] {
            assert_eq!(CarriedCall::decoded(bad), None, "{bad:?}");
        }
    }
}
