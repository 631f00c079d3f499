//! What an agent program sends to a hook: the bytes on stdin, and the event in them.

use std::time::Instant;

use serde_json::Value;

use super::plan::Weight;
use crate::error::CliError;
use crate::host::event::HookCall;
use crate::host::{self, Host};
use crate::words;

/// The largest payload. A payload has the text of one or two files, so a larger one is a mistake of the program.
const LARGEST: usize = 64 << 20;

/// A payload that cannot be understood.
pub(super) struct BadPayload {
    pub(super) answer_to: &'static dyn Host,
    /// Of the call that it may be about.
    pub(super) weight: Weight,
    pub(super) why: String,
}

impl BadPayload {
    /// The answer that blocks the call, unless it is certainly harmless.
    pub(super) fn answer(self) -> Option<Value> {
        let Self { answer_to: host, weight, why } = self;
        (weight == Weight::Writes).then(|| host.block(&words::hook_fault(&not_understood(host, &why)), None))
    }
}

/// The error for a payload of this program that cannot be understood.
pub(super) fn not_understood(host: &dyn Host, why: &str) -> CliError {
    CliError::usage(
        format!("cannot understand the input that `{}` sent to its hook: {why}", host.name()),
        "check that `tollgate init --host` was run for this program, and that tollgate supports its version",
    )
}

/// Everything on stdin, if it ends before the deadline.
pub(super) fn read_stdin(deadline: Instant) -> Result<Vec<u8>, String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = rustix::stdio::stdin();
    let mut bytes = Vec::with_capacity(8 << 10);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err("its end did not arrive in time".into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        let mut chunk = [0; 16 << 10];
        match rustix::io::read(stdin, &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        if bytes.len() > LARGEST {
            return Err("it is larger than 64 MiB".into());
        }
    }
}

/// The program that sent the payload, and the event in it.
pub(super) fn understand(
    called: &'static dyn Host,
    bytes: &[u8],
) -> Result<(&'static dyn Host, HookCall), BadPayload> {
    // Some programs on some systems send a byte order mark first.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bad = |answer_to: &'static dyn Host, text: &str, why: String| {
        let may_write = answer_to.may_be_before_a_tool(text);
        BadPayload { answer_to, weight: if may_write { Weight::Writes } else { Weight::Harmless }, why }
    };
    let payload: Value = serde_json::from_slice(bytes)
        .map_err(|error| bad(called, &String::from_utf8_lossy(bytes), error.to_string()))?;
    let host = host::recognise(&payload, called);
    host.hear(&payload).map(|heard| (host, heard)).map_err(|why| {
        // Only the fields of the event itself tell which event it is, not those of the tool's input.
        let mut own = payload.clone();
        if let Some(fields) = own.as_object_mut() {
            fields.retain(|_, value| value.is_string());
        }
        bad(host, &own.to_string(), why)
    })
}
