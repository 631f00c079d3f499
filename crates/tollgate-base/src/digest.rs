//! SHA-256 digests. tollgate compares files by their digests only.
//!
//! Sizes and time stamps are not reliable: an editor can keep both while it changes the bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;

/// A SHA-256 digest. Prints as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The first eight digits, for messages to people.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Takes 32 bytes that are already a digest.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Computes a digest from bytes that arrive in pieces.
#[derive(Clone, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes added.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every line of the ledger has some of these, and formatting byte by byte takes much longer.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        f.write_str(str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256: 64 hex digits are expected")]
pub struct NotADigest(String);

impl FromStr for Digest {
    type Err = NotADigest;

    /// Parses 64 hex digits in upper or lower case, with or without the ledger's `sha256:` prefix.
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let wrong = || NotADigest(text.chars().take(80).collect());
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        if hex.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(wrong()) };
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn empty_bytes_have_the_published_digest() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(Hasher::default().finish(), Digest::of(b""));
    }

    #[test]
    fn text_and_bytes_agree() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(format!("sha256:{}", digest.to_string().to_uppercase()).parse(), Ok(digest));
        assert_eq!(digest.short(), "ba7816bf");
    }

    #[test]
    fn text_that_is_not_a_digest_is_refused() {
        for text in ["", "abc", &EMPTY[1..], &format!("{EMPTY}0"), &EMPTY.replace('e', "g"), &"é".repeat(32)]
        {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }
}
