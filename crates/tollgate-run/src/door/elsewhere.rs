//! Other systems have no runs with a door.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::carried_call::CarriedCall;

/// Never.
pub fn call(_folder: &Path, _call: &CarriedCall) -> io::Result<u8> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never.
pub fn receive(_door: &UnixStream) -> io::Result<(CarriedCall, [OwnedFd; 3])> {
    Err(io::ErrorKind::Unsupported.into())
}
