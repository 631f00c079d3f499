//! Numbers in the arguments of commands.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::words;

/// The number in this range that the text stands for.
pub(super) fn number<N>(text: &str, range: RangeInclusive<N>) -> Result<N, String>
where
    N: FromStr + PartialOrd + Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| words::bad_number(text, range.start(), range.end()))
}
