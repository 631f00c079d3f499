//! Lengths of time and sizes as people write them: `10m`, `64MiB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};

/// A length of time, written as `2s`, `10m`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait(pub Duration);

/// A number of bytes, written as `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The number before a unit, times what this unit stands for: `64 MiB`.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (text[..digits].parse::<u64>().ok()?, text[digits..].trim());
    number.checked_mul(units.iter().find(|(name, _)| *name == unit)?.1)
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        parse(text, &units).map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| {
            format!("`{text}` is not a length of time: write `500ms`, `2s`, `10m`, `12h` or `7d`")
        })
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        parse(text, &units)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a size: write `4096`, `512KiB`, `64MiB` or `2GiB`"))
    }
}

struct FromText<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> de::Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number and its unit, in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText(std::marker::PhantomData))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_required_and_checked() {
        for (text, ms) in
            [("250ms", 250), ("2s", 2_000), (" 10 m ", 600_000), ("12h", 43_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(text.parse(), Ok(Wait(Duration::from_millis(ms))), "{text}");
        }
        for (text, bytes) in
            [("4096", 4096), ("1B", 1), ("512KiB", 512 << 10), ("64 MiB", 64 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "s", "2", "-1s", "1.5s", "2 parsecs", "99999999999999999999s", "9999999999999999d"] {
            assert!(text.parse::<Wait>().is_err(), "{text}");
        }
        for text in ["", "MiB", "-1", "1MB", "99999999999GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
