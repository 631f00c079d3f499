//! The plots of the board and of the conflicts page, made from the trends of the ledger. All have the same time axis.

use std::sync::PoisonError;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::vault::state::State;

use super::plot::{Plot, PlotKind, PlotSeries, Scale, duration};
use super::text::{ago, count};
use super::visit::Visit;
use crate::trends::{Period, Trends};

/// The time that plots cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum TimeSpan {
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "6h")]
    SixHours,
    #[serde(rename = "24h")]
    Day,
    #[serde(rename = "7d")]
    Week,
}

impl TimeSpan {
    const ALL: [Self; 4] = [Self::Hour, Self::SixHours, Self::Day, Self::Week];

    fn word(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::SixHours => "6h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    /// The number of minutes of one period, and the number of periods.
    fn periods(self) -> (i64, usize) {
        match self {
            Self::Hour => (5, 12),
            Self::SixHours => (15, 24),
            Self::Day => (60, 24),
            Self::Week => (360, 28),
        }
    }

    fn of_one_period(self) -> &'static str {
        match self {
            Self::Hour => "per 5 min",
            Self::SixHours => "per 15 min",
            Self::Day => "per hour",
            Self::Week => "per 6 hours",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::SixHours => "6 hours",
            Self::Day => "24 hours",
            Self::Week => "7 days",
        }
    }

    /// The shortest span that covers everything that happened.
    fn covering(first: Option<Timestamp>, now: Timestamp) -> Self {
        let minutes = first.map_or(0, |first| now.duration_since(first).as_secs() / 60);
        let covers = |span: &Self| {
            let (length, number) = span.periods();
            minutes < length * (i64::try_from(number).unwrap_or(0) - 1)
        };
        Self::ALL.into_iter().find(covers).unwrap_or(Self::Week)
    }
}

/// The trends of one span, as periods.
struct SpanPeriods {
    span: TimeSpan,
    periods: Vec<(Timestamp, Period)>,
    /// The age of the oldest approval at the end of each period.
    oldest: Vec<Option<f64>>,
}

impl SpanPeriods {
    fn of(trends: &Trends, wanted: Option<TimeSpan>, now: Timestamp) -> Self {
        let span = wanted.unwrap_or_else(|| TimeSpan::covering(trends.first(), now));
        let (minutes, number) = span.periods();
        let periods = trends.periods(minutes, number, now);
        let minute = whole_minute(now);
        let age = |end: Timestamp| trends.oldest_approval(end.min(minute)).map(|age| age.as_secs_f64());
        let oldest = periods.iter().map(|(end, _)| age(*end)).collect();
        Self { span, periods, oldest }
    }

    fn values(&self, value: impl Fn(&Period) -> Option<f64>) -> Vec<Option<f64>> {
        self.periods.iter().map(|(_, period)| value(period)).collect()
    }

    fn all(&self) -> Period {
        Period::sum(self.periods.iter().map(|(_, period)| period))
    }

    /// The time of each period and what happened in it.
    fn tips(&self, say: impl Fn(usize, &Period) -> String) -> Vec<String> {
        let (minutes, _) = self.span.periods();
        let tip = |(index, (end, period)): (usize, &(Timestamp, Period))| {
            let begin = Timestamp::from_second(end.as_second() - minutes * 60).unwrap_or(*end);
            let clock =
                |time: Timestamp, format: &str| time.to_zoned(TimeZone::UTC).strftime(format).to_string();
            format!("{}–{} UTC: {}", clock(begin, "%b %d %H:%M"), clock(*end, "%H:%M"), say(index, period))
        };
        self.periods.iter().enumerate().map(tip).collect()
    }

    /// The labels of the time axis.
    fn times(&self) -> Vec<String> {
        let format = if self.span == TimeSpan::Week { "%b %d" } else { "%H:%M" };
        let (minutes, number) = self.span.periods();
        let label = |index: usize| {
            let begin = self.periods[index].0.as_second() - minutes * 60;
            let begin = Timestamp::from_second(begin).unwrap_or(self.periods[index].0);
            begin.to_zoned(TimeZone::UTC).strftime(format).to_string()
        };
        vec![label(0), label(number / 2), "now".to_owned()]
    }
}

/// The begin of this minute, so that a page does not change with every second.
fn whole_minute(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second().div_euclid(60) * 60).unwrap_or(now)
}

fn most(series: &[&[Option<f64>]]) -> f64 {
    series.iter().flat_map(|values| values.iter().flatten()).fold(0.0, |most, value| value.max(most))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a week")]
fn float(number: u64) -> f64 {
    number as f64
}

fn words(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The four plots of the board, and the links to other spans.
pub(super) fn overview(visit: &Visit, wanted: Option<TimeSpan>, now: Timestamp) -> Markup {
    let Some(trends) = visit.site.ledger().trends else {
        return html! { section.trends aria-label="Trends" { p.none role="status" { "Reading the ledger…" } } };
    };
    let mut covered = SpanPeriods::of(&trends.lock().unwrap_or_else(PoisonError::into_inner), wanted, now);
    let oldest = match visit.site.board() {
        Ok(Some(board)) => board.column(State::PendingApproval).oldest().map(|(_, since)| since),
        _ => None,
    };
    // What waits now is what the folder says: the ledger does not know tasks that were moved by hand.
    if let Some(last) = covered.oldest.last_mut() {
        *last = oldest.map(|since| whole_minute(now).duration_since(since).as_secs_f64().max(0.0));
    }
    html! {
        section.trends aria-labelledby="trends-title" {
            header {
                h2 #trends-title { "Last " (covered.span.in_words()) }
                nav.spans aria-label="Time span" {
                    @for span in TimeSpan::ALL {
                        a href=(format!("/?span={}", span.word())) aria-current=[(span == covered.span).then_some("true")] {
                            (span.word())
                        }
                    }
                }
            }
            div.plots {
                (done(&covered)) (times(&covered)) (refusals(&covered)) (approvals(&covered, oldest, now))
            }
        }
    }
}

fn done(covered: &SpanPeriods) -> Markup {
    let done = covered.values(|period| Some(float(period.done)));
    let rejected = covered.values(|period| Some(float(period.rejected)));
    let all = covered.all();
    let both: Vec<Option<f64>> = covered.values(|period| Some(float(period.done + period.rejected)));
    let say = |period: &Period| format!("{} done, {} rejected", period.done, period.rejected);
    Plot {
        id: "plot-done",
        title: format!("Done {}", covered.span.of_one_period()),
        headline: html! { (all.done) },
        words: format!("{} in the last {}", say(&all), covered.span.in_words()),
        kind: PlotKind::Bars,
        series: vec![
            PlotSeries { name: "done", class: "good", values: done },
            PlotSeries { name: "rejected", class: "bad", values: rejected },
        ],
        tips: covered.tips(|_, period| say(period)),
        scale: Scale::of_counts(most(&[&both])),
        times: covered.times(),
    }
    .show()
}

fn times(covered: &SpanPeriods) -> Markup {
    let (waiting, cycle) = (covered.values(Period::waiting), covered.values(Period::cycle));
    let all = covered.all();
    let said = |time: Option<f64>| time.map_or("none".to_owned(), duration);
    let say = |period: &Period| {
        format!("median waiting time {}, median cycle time {}", said(period.waiting()), said(period.cycle()))
    };
    Plot {
        id: "plot-times",
        title: "Waiting and cycle time".to_owned(),
        headline: html! {
            @match (all.waiting(), all.cycle()) {
                (None, None) => "–",
                (waiting, cycle) => { (said(waiting)) " + " (said(cycle)) },
            }
        },
        words: format!("{} in the last {}", say(&all), covered.span.in_words()),
        kind: PlotKind::Lines,
        scale: Scale::of_seconds(most(&[&waiting, &cycle])),
        series: vec![
            PlotSeries { name: "waiting for a claim", class: "wait", values: waiting },
            PlotSeries { name: "first claim to done", class: "go", values: cycle },
        ],
        tips: covered.tips(|_, period| say(period)),
        times: covered.times(),
    }
    .show()
}

fn refusals(covered: &SpanPeriods) -> Markup {
    let rate = covered.values(Period::refusal_rate);
    let all = covered.all();
    let say = |period: &Period| match period.refusal_rate() {
        Some(rate) => {
            format!("{:.0} %, {} of {}", rate * 100.0, period.refusals, period.refusals + period.writes)
        }
        None => "no writes".to_owned(),
    };
    Plot {
        id: "plot-refusals",
        title: "Refused writes".to_owned(),
        headline: html! {
            @match all.refusal_rate() {
                Some(rate) => { (format!("{:.0} %", rate * 100.0)) },
                None => "–",
            }
        },
        words: format!("{} in the last {}", say(&all), covered.span.in_words()),
        kind: PlotKind::Bars,
        scale: Scale::of_shares(most(&[&rate])),
        series: vec![PlotSeries { name: "refused", class: "bad", values: rate }],
        tips: covered.tips(|_, period| say(period)),
        times: covered.times(),
    }
    .show()
}

fn approvals(covered: &SpanPeriods, oldest: Option<Timestamp>, now: Timestamp) -> Markup {
    let said = |age: Option<f64>| age.map_or("nothing waits".to_owned(), duration);
    Plot {
        id: "plot-approvals",
        title: "Oldest approval".to_owned(),
        headline: html! {
            @match oldest {
                Some(since) => a href="/approvals" { (ago(since, now)) },
                None => "–",
            }
        },
        words: format!("how long the oldest approval has waited, in the last {}", covered.span.in_words()),
        kind: PlotKind::Bars,
        scale: Scale::of_seconds(most(&[&covered.oldest])),
        series: vec![PlotSeries { name: "oldest", class: "wait", values: covered.oldest.clone() }],
        tips: covered.tips(|index, _| said(covered.oldest[index])),
        times: covered.times(),
    }
    .show()
}

/// Writes and refusals over time, for the conflicts page.
pub(super) fn writes(visit: &Visit, now: Timestamp) -> Markup {
    let Some(trends) = visit.site.ledger().trends else { return html! {} };
    let covered = SpanPeriods::of(&trends.lock().unwrap_or_else(PoisonError::into_inner), None, now);
    let all = covered.all();
    if all.writes + all.refusals == 0 {
        return html! {};
    }
    let say = |period: &Period| {
        let (writes, refusals) = (words(period.writes), words(period.refusals));
        format!("{} and {}", count(writes, "write", "writes"), count(refusals, "refusal", "refusals"))
    };
    let tried = covered.values(|period| Some(float(period.writes + period.refusals)));
    Plot {
        id: "plot-writes",
        title: format!("Writes {}", covered.span.of_one_period()),
        headline: html! { (say(&all)) },
        words: format!("{} in the last {}", say(&all), covered.span.in_words()),
        kind: PlotKind::Bars,
        scale: Scale::of_counts(most(&[&tried])),
        series: vec![
            PlotSeries { name: "written", class: "good", values: covered.values(|p| Some(float(p.writes))) },
            PlotSeries { name: "refused", class: "bad", values: covered.values(|p| Some(float(p.refusals))) },
        ],
        tips: covered.tips(|_, period| say(period)),
        times: covered.times(),
    }
    .show()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_span_that_covers_everything_is_shown() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let ago = |seconds: i64| Some(Timestamp::from_second(1_000_000_000 - seconds).unwrap());
        for (first, span) in [
            (None, TimeSpan::Hour),
            (ago(54 * 60), TimeSpan::Hour),
            (ago(56 * 60), TimeSpan::SixHours),
            (ago(20 * 3600), TimeSpan::Day),
            (ago(2 * 86_400), TimeSpan::Week),
            (ago(100 * 86_400), TimeSpan::Week),
        ] {
            assert_eq!(TimeSpan::covering(first, now), span, "{first:?}");
        }
        for span in TimeSpan::ALL {
            let (minutes, number) = span.periods();
            assert!(minutes * 60 * i64::try_from(number).unwrap() <= crate::trends::KEPT.as_secs());
        }
    }
}
