//! Names and ids that end up in file names, ledger lines and terminals: agents, turns, claims, steps.
//!
//! Invariant: every value here is plain ASCII without spaces, control characters or path separators, so it needs no
//! escaping anywhere else. An agent's name becomes a folder in the vault and a word in messages: letters, digits and
//! `-_.@+`, at most 64 bytes, no leading dot or dash.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Fault, Result};

/// Longest name: two names and two hashes must fit into a file name of 255 bytes. A message quotes no more of a bad one.
const MAX: usize = 64;

fn check_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    if text.is_empty() || text.len() > MAX || text.starts_with(['.', '-']) || !text.chars().all(plain) {
        return Err(format!("use 1 to {MAX} letters, digits and `-_.@+`, not starting with a dot or a dash"));
    }
    Ok(())
}

fn check_id(prefix: &str, text: &str) -> Result<(), String> {
    if text.strip_prefix(prefix).is_some_and(is_random_id) {
        return Ok(());
    }
    Err(format!("it should be `{prefix}` and 16 hex digits"))
}

/// A string type that is checked when it is parsed: `$check` says what is wrong with a text. With a prefix, it is for
/// random ids.
macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:expr $(, $prefix:literal)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            $(
                /// A new id. Its 64 random bits make it unique.
                pub fn new() -> Result<Self> {
                    Ok(Self(format!("{}{}", $prefix, random_id()?).into()))
                }
            )?
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Fault;

            fn from_str(text: &str) -> Result<Self> {
                let check: fn(&str) -> Result<(), String> = $check;
                check(text).map_err(|why| {
                    let shown: String = text.chars().take(MAX).collect();
                    Fault::invalid(format!(concat!("`{}` is not ", $kind, ": {}"), shown.escape_debug(), why))
                })?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Fault;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }
    };
}

checked! {
    /// The name of an agent, or of a person at the command line.
    Agent, "a valid agent name", check_name
}

impl Agent {
    /// Whether both are agents of one session: a main agent and its subagents, whose names have a suffix of six hex digits.
    pub fn is_same_session(&self, other: &Self) -> bool {
        let main = |name: &Self| {
            let is_suffix = |text: &str| text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            name.0
                .rsplit_once('.')
                .filter(|(_, suffix)| is_suffix(suffix))
                .map_or(&*name.0, |(main, _)| main)
                .to_owned()
        };
        main(self) == main(other)
    }
}

checked! {
    /// One stretch of an agent's work, from a request to its answer. Hosts may choose their own ids.
    TurnId, "a valid turn id", check_name, "t-"
}

checked! {
    /// The id of a claim. A caller that presents it acts as the owner of the task.
    ClaimId, "a claim id", |text| check_id("c-", text), "c-"
}

checked! {
    /// The id of one step of a task. The client makes it, so that a step whose answer was lost can be retried safely.
    StepId, "a step id", |text| check_id("s-", text), "s-"
}

/// Sixteen random hex digits.
pub fn random_id() -> Result<String> {
    let bits = getrandom::u64()
        .map_err(|error| Fault::invalid(format!("the system has no random numbers: {error}")))?;
    Ok(format!("{bits:016x}"))
}

/// Whether [`random_id`] can have made this.
pub fn is_random_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names_are_narrow() {
        for good in ["blue", "a", "cloud-1", "claude_code.2", "me@host", &"x".repeat(64)] {
            assert_eq!(good.parse::<Agent>().unwrap().as_str(), good);
        }
        for bad in
            ["", ".", "..", "-a", ".hidden", "a/b", "a b", "a\n", "é", "a\0", "a\x1b[31m", &"x".repeat(65)]
        {
            let error = bad.parse::<Agent>().unwrap_err().to_string();
            assert!(!error.contains(char::is_control), "{error:?} is safe to print");
        }
    }

    #[test]
    fn ids_are_unique_and_checked() {
        assert_ne!(TurnId::new().unwrap(), TurnId::new().unwrap());
        assert!(TurnId::new().unwrap().as_str().starts_with("t-"));
        let id = ClaimId::new().unwrap();
        assert_eq!(id.as_str().parse::<ClaimId>().unwrap(), id);
        for bad in
            ["", "c-", "c-xyz", "s-0123456789abcdef", "../../c-0123456789abcdef", "c-0123456789abcdef\n"]
        {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad:?}");
        }
    }
}
