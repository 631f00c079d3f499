//! Secrets: made at random, compared in constant time, never printed by accident.

use std::fmt;

use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};

/// A text that proves who sends a request. Only its hash is compared.
#[derive(Clone)]
pub struct Secret(String);

/// The shortest secret that a person may choose. 22 random letters, digits, `-` and `_` hold 128 bits.
pub const SHORTEST: usize = 22;

/// The number of random bytes in a secret that tollgate makes: 160 bits.
const RANDOM: usize = 20;

/// Why a text cannot be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeakSecret {
    /// It has fewer than [`SHORTEST`] characters.
    Short,
    /// It has characters that an address or a header cannot carry: anything but printable ASCII without spaces.
    Characters,
}

impl fmt::Display for WeakSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "the token has fewer than {SHORTEST} characters"),
            Self::Characters => f.write_str("the token has characters other than printable ASCII"),
        }
    }
}

impl std::error::Error for WeakSecret {}

impl Secret {
    /// A new one.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; RANDOM];
        getrandom::fill(&mut bytes).map_err(|error| Fault::Io {
            doing: "read",
            path: "random numbers".into(),
            source: error.into(),
        })?;
        Ok(Self(bytes.map(|byte| format!("{byte:02x}")).concat()))
    }

    /// One that a person has chosen.
    pub fn chosen(text: String) -> Result<Self, WeakSecret> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(WeakSecret::Characters);
        }
        if text.len() < SHORTEST { Err(WeakSecret::Short) } else { Ok(Self(text)) }
    }

    /// The text, to show it to its owner.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is stored and compared instead of the text.
    pub fn hash(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// A digest of a text that only the owner of this secret can compute.
    pub(crate) fn sign(&self, text: &str) -> Digest {
        // Hashed twice with the key, so that no signature can be extended to that of a longer text.
        let inner = Digest::of(format!("{}\n{text}", self.0).as_bytes());
        Digest::of(format!("{}\n{inner}", self.0).as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Compares in constant time, so that the time of an answer says nothing about the digest.
pub(crate) fn same(a: &Digest, b: &Digest) -> bool {
    let differ = a.as_bytes().iter().zip(b.as_bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_random_and_is_not_printed() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(a.reveal(), b.reveal());
        assert_eq!(a.reveal().len(), 2 * RANDOM);
        const { assert!(RANDOM * 8 >= 128) };
        assert!(!format!("{a:?}").contains(a.reveal()));
        assert!(same(&a.hash(), &Digest::of(a.reveal().as_bytes())) && !same(&a.hash(), &b.hash()));
        assert_ne!(a.sign("x"), a.sign("y"));
        assert_ne!(a.sign("x"), b.sign("x"));
    }

    #[test]
    fn a_chosen_secret_must_be_long_and_fit_into_a_header() {
        let chosen = |text: &str| Secret::chosen(text.to_owned()).map(|secret| secret.reveal().to_owned());
        assert_eq!(chosen(&"x".repeat(SHORTEST - 1)), Err(WeakSecret::Short));
        assert_eq!(chosen(""), Err(WeakSecret::Short));
        assert_eq!(chosen(&"x".repeat(SHORTEST)), Ok("x".repeat(SHORTEST)));
        for bad in ["a b", "ä", "a\nb", "\0"] {
            assert_eq!(chosen(&bad.repeat(SHORTEST)), Err(WeakSecret::Characters), "{bad:?}");
        }
    }
}
