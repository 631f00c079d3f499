//! Points in time, as people write them in the arguments of commands.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tollgate::settings::Wait;
use tollgate::visible::plain;

/// The forms of a point in time, for help and errors.
pub(super) const FORMS: &str = "`yesterday`, `2h`, `7d`, `2026-11-18` or `2026-11-18T09:30:00Z`";

/// The point in time that the text stands for: a time, the first moment of a day here, or a length of time before now.
pub(super) fn moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    moment_in(text, now, &TimeZone::system())
}

fn moment_in(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, String> {
    let today = now.to_zoned(zone.clone()).date();
    let day = match text {
        "today" => Some(today),
        "yesterday" => today.yesterday().ok(),
        text => text.parse::<Date>().ok().filter(|_| text.len() == "2026-11-18".len()),
    };
    let start = || day?.to_zoned(zone.clone()).ok().map(|start| start.timestamp());
    let ago = || text.parse::<Wait>().ok().and_then(|wait| now.checked_sub(wait.0).ok());
    start()
        .or_else(ago)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| format!("`{}` is not a time: write {FORMS}", plain(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_lengths_and_times_are_understood() {
        let now: Timestamp = "2026-11-19T01:30:00Z".parse().unwrap();
        // The day before, for somebody five hours behind UTC.
        let zone = TimeZone::fixed(jiff::tz::offset(-5));
        for (text, start) in [
            ("today", "2026-11-18T05:00:00Z"),
            ("yesterday", "2026-11-17T05:00:00Z"),
            ("2026-11-01", "2026-11-01T05:00:00Z"),
            ("90m", "2026-11-19T00:00:00Z"),
            ("2d", "2026-11-17T01:30:00Z"),
            ("2026-11-18T09:30:00Z", "2026-11-18T09:30:00Z"),
            ("2026-11-18T09:30:00+02:00", "2026-11-18T07:30:00Z"),
        ] {
            assert_eq!(moment_in(text, now, &zone), Ok(start.parse().unwrap()), "{text}");
        }
        for text in ["", "tomorrow", "2", "-1d", "2026-13-01", "99999999999d", "20261118"] {
            assert!(moment_in(text, now, &zone).is_err(), "{text}");
        }
    }
}
