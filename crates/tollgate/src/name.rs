//! Names that end up in file names, ledger lines and terminals: agents, turns, ids.
//!
//! An agent's name becomes a folder in the vault and a word in messages, so it is narrow on purpose: letters, digits
//! and `-_.@+`, at most 64 bytes, no leading dot or dash. What passes here needs no escaping anywhere else.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::digest::HEX;
use crate::error::{Fault, Result};

/// Longest name: two of them and two hashes must fit into a file name of 255 bytes.
const MAX: usize = 64;

fn check(kind: &str, text: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    if text.is_empty() || text.len() > MAX || text.starts_with(['.', '-']) || !text.chars().all(plain) {
        let shown: String = text.chars().take(MAX).collect();
        return Err(Fault::invalid(format!(
            "{} cannot be the name of {kind}: use 1 to {MAX} letters, digits and `-_.@+`, not starting with a dot or a dash",
            shown.escape_debug()
        )));
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Fault;

            fn from_str(text: &str) -> Result<Self> {
                check($kind, text)?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Fault;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

name! {
    /// Who acts: an agent, or a person at the command line.
    Agent, "an agent"
}

name! {
    /// One stretch of an agent's work, from a request to its answer.
    TurnId, "a turn"
}

impl TurnId {
    /// One that nobody else has.
    pub fn new() -> Result<Self> {
        Ok(Self(random_word("t-")?.into()))
    }
}

/// Sixteen hex digits that nobody else has.
pub fn random_id() -> Result<String> {
    random_word("")
}

/// The same after a prefix.
pub(crate) fn random_word(prefix: &str) -> Result<String> {
    let bits = getrandom::u64()
        .map_err(|error| Fault::invalid(format!("the system gives no random numbers: {error}")))?;
    let mut word = String::with_capacity(prefix.len() + 16);
    word.push_str(prefix);
    word.extend(hex_digits::<16>(bits).map(char::from));
    Ok(word)
}

/// The last digits of a number.
pub(crate) fn hex_digits<const DIGITS: usize>(number: u64) -> [u8; DIGITS] {
    std::array::from_fn(|at| HEX[(number >> (4 * (DIGITS - 1 - at))) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_narrow() {
        for good in ["blue", "a", "cloud-1", "claude_code.2", "me@host", &"x".repeat(64)] {
            assert_eq!(good.parse::<Agent>().unwrap().as_str(), good);
        }
        for bad in
            ["", ".", "..", "-a", ".hidden", "a/b", "a b", "a\n", "é", "a\0", "a\x1b[31m", &"x".repeat(65)]
        {
            assert!(bad.parse::<Agent>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_differ() {
        assert_ne!(TurnId::new().unwrap(), TurnId::new().unwrap());
        assert!(TurnId::new().unwrap().as_str().starts_with("t-"));
        assert_eq!(hex_digits(0x0123_4567_89ab_cdef), *b"0123456789abcdef");
        assert_eq!(hex_digits(0xf00_00ba), *b"00ba");
    }
}
