//! A call of `tollgate` inside a run, and the text of it that goes through the door.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

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

impl CarriedCall {
    /// The text for the door: parts that end with a zero, which none of them contains. They are the folder, the number of variables,
    /// each variable and its value, each argument.
    pub fn encoded(&self) -> Vec<u8> {
        let number = OsString::from(self.variables.len().to_string());
        let variables = self.variables.iter().flat_map(|(name, value)| [name, value]);
        let parts = [self.folder.as_os_str(), &number].into_iter();
        let parts = parts.chain(variables.chain(&self.arguments).map(OsString::as_os_str));
        parts.flat_map(|part| part.as_bytes().iter().chain(&[0])).copied().collect()
    }

    /// The call in this text. `None` if it is none.
    pub fn decoded(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(&[0])?;
        let mut parts = text.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
        let folder = parts.next()?.into();
        let number: usize = parts.next()?.to_str()?.parse().ok()?;
        let variables =
            (0..number).map(|_| Some((parts.next()?, parts.next()?))).collect::<Option<Vec<_>>>()?;
        Some(Self { folder, variables, arguments: parts.collect() })
    }
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
