//! A small chart of commits (upward) and refusals (downward) over time, as SVG. No script draws it.

use jiff::Timestamp;
use maud::{Markup, html};

use super::text::{age_words, count};

/// The number of bars. Each is wide enough to see on a phone.
const BARS: usize = 48;

/// The time spans, in seconds. The chart uses the shortest that covers all events.
const SPANS: [i64; 7] = [600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400];

const WIDTH: usize = 480;
const UP: usize = 44;
const DOWN: usize = 26;

/// The times of all commits and refusals.
#[derive(Debug, Default)]
pub(super) struct Activity {
    pub(super) commits: Vec<Timestamp>,
    pub(super) refusals: Vec<Timestamp>,
}

impl Activity {
    fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.refusals.is_empty()
    }

    /// The chart, with a caption in words.
    pub(super) fn plot(&self, now: Timestamp) -> Markup {
        if self.is_empty() {
            return html! {};
        }
        let oldest = self.commits.iter().chain(&self.refusals).min().copied().unwrap_or(now);
        let age = now.duration_since(oldest).as_secs().max(0);
        let span = SPANS.into_iter().find(|span| age < *span).unwrap_or(SPANS[SPANS.len() - 1]);
        let bars = |times: &[Timestamp]| {
            let mut bars = [0_usize; BARS];
            for time in times {
                let ago = now.duration_since(*time).as_secs().clamp(0, span - 1);
                let from_the_end =
                    usize::try_from(ago).unwrap_or(0) * BARS / usize::try_from(span).unwrap_or(1);
                bars[BARS - 1 - from_the_end.min(BARS - 1)] += 1;
            }
            bars
        };
        let (commits, refusals) = (bars(&self.commits), bars(&self.refusals));
        let most = commits.iter().chain(&refusals).max().copied().unwrap_or(1).max(1);
        let height = |number: usize, room: usize| {
            // Even the smallest number must be visible.
            if number == 0 { 0 } else { (number * room / most).max(2) }
        };
        let words = format!(
            "{} and {} in the last {}",
            count(self.commits.len(), "commit", "commits"),
            count(self.refusals.len(), "refusal", "refusals"),
            age_words(span)
        );
        let step = WIDTH / BARS;
        html! {
            figure.plot {
                svg viewBox=(format!("0 0 {WIDTH} {}", UP + DOWN + 1)) role="img" aria-label=(words)
                    preserveAspectRatio="none" {
                    @for (index, (up, down)) in commits.iter().zip(refusals).enumerate() {
                        @let (up, down) = (height(*up, UP), height(down, DOWN));
                        @if up > 0 {
                            rect.commit x=(index * step) y=(UP - up) width=(step - 2) height=(up) {}
                        }
                        @if down > 0 {
                            rect.refusal x=(index * step) y=(UP + 1) width=(step - 2) height=(down) {}
                        }
                    }
                    line.axis x1="0" x2=(WIDTH) y1=(UP) y2=(UP) {}
                }
                figcaption {
                    span { (age_words(span)) " ago" }
                    span.what { (words) }
                    span { "now" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_in_the_chart() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ago = |seconds: i64| Timestamp::from_second(1_000_000 - seconds).unwrap();
        let nothing = Activity::default();
        assert_eq!(nothing.plot(now).into_string(), "");
        let one = Activity { commits: vec![ago(0), ago(0), ago(599)], refusals: vec![ago(-5)] };
        let svg = one.plot(now).into_string();
        assert!(svg.contains("3 commits and 1 refusal in the last 10 min"), "{svg}");
        assert_eq!(svg.matches("class=\"commit\"").count(), 2, "the first and the last bar: {svg}");
        assert_eq!(svg.matches("class=\"refusal\"").count(), 1, "a clock that is ahead is now: {svg}");
        let old = Activity { commits: vec![ago(86_400 * 2)], refusals: Vec::new() };
        assert!(old.plot(now).into_string().contains("in the last 7 d"));
    }
}
