//! One plot as SVG: bars or lines over time on one scale, with axes and a tooltip for each period. No script draws it.
//!
//! The drawing is stretched to the width of its place, so everything that must not be stretched is outside of it: the
//! labels are HTML, and strokes do not scale.

use maud::{Markup, html};

/// The height of the drawing, in its own units. A period is [`STEP`] wide.
const HEIGHT: f64 = 100.0;
const STEP: usize = 10;

/// A plot.
pub(super) struct Plot<'a> {
    /// The id of its title.
    pub(super) id: &'a str,
    pub(super) title: String,
    /// What it says now, in one figure.
    pub(super) headline: Markup,
    /// What it says, for people who do not see it.
    pub(super) words: String,
    pub(super) kind: PlotKind,
    pub(super) series: Vec<PlotSeries<'a>>,
    /// For each period: its tooltip.
    pub(super) tips: Vec<String>,
    pub(super) scale: Scale,
    /// The labels of the time axis, from left to right.
    pub(super) times: Vec<String>,
}

/// How values are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlotKind {
    /// One bar for each period; several series on top of each other.
    Bars,
    /// One line for each series.
    Lines,
}

/// The values of one kind, one for each period.
pub(super) struct PlotSeries<'a> {
    pub(super) name: &'a str,
    /// The class that gives it its colour.
    pub(super) class: &'static str,
    pub(super) values: Vec<Option<f64>>,
}

/// A scale from zero to `top`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) top: f64,
    label: fn(f64) -> String,
}

impl Scale {
    /// For counts.
    pub(super) fn of_counts(most: f64) -> Self {
        let mut top = 2.0;
        while top < most {
            // 2, 4, 10, 20, 40, 100: half of each is a whole number.
            let leading = top / 10_f64.powf(top.log10().floor());
            top *= if (leading - 4.0).abs() < 0.5 { 2.5 } else { 2.0 };
        }
        Self { top, label: |value| format!("{value:.0}") }
    }

    /// For lengths of time, in seconds.
    pub(super) fn of_seconds(most: f64) -> Self {
        const TOPS: [f64; 16] = [
            2.0, 4.0, 10.0, 20.0, 60.0, 120.0, 240.0, 600.0, 1200.0, 3600.0, 7200.0, 14_400.0, 43_200.0,
            86_400.0, 172_800.0, 604_800.0,
        ];
        let top = TOPS.into_iter().find(|top| most <= *top);
        let days = || (most / 172_800.0).ceil() * 172_800.0;
        Self { top: top.unwrap_or_else(days), label: duration }
    }

    /// For shares, from 0 to 1.
    pub(super) fn of_shares(most: f64) -> Self {
        let top = [0.02, 0.1, 0.2, 0.5].into_iter().find(|top| most <= *top).unwrap_or(1.0);
        Self { top, label: |value| format!("{:.0} %", value * 100.0) }
    }

    /// A value in words.
    pub(super) fn say(self, value: f64) -> String {
        (self.label)(value)
    }

    /// The distance of a value from the bottom of the drawing. Even the smallest value is visible.
    fn height(self, value: f64) -> f64 {
        if value <= 0.0 { 0.0 } else { (value / self.top * HEIGHT).clamp(1.5, HEIGHT) }
    }
}

/// A length of time in few words.
pub(super) fn duration(seconds: f64) -> String {
    let short = |value: f64, unit: &str| {
        let digits = usize::from(value < 10.0 && (value - value.round()).abs() > 0.05);
        format!("{value:.digits$} {unit}")
    };
    match seconds {
        0.0 => "0".to_owned(),
        ..60.0 => short(seconds, "s"),
        ..3600.0 => short(seconds / 60.0, "min"),
        ..86_400.0 => short(seconds / 3600.0, "h"),
        _ => short(seconds / 86_400.0, "d"),
    }
}

impl Plot<'_> {
    pub(super) fn show(&self) -> Markup {
        let width = self.tips.len() * STEP;
        let (top, label) = (self.scale.top, |value| self.scale.say(value));
        html! {
            figure.plot aria-labelledby=(self.id) {
                figcaption {
                    p.name id=(self.id) { (self.title) }
                    p.headline { (self.headline) }
                    @if self.series.len() > 1 {
                        p.legend { @for series in &self.series { span class=(series.class) { (series.name) } " " } }
                    }
                }
                div.axes {
                    div.y aria-hidden="true" { span { (label(top)) } span { (label(top / 2.0)) } span { (label(0.0)) } }
                    svg viewBox=(format!("0 0 {width} {HEIGHT}")) role="img" aria-label=(self.words)
                        preserveAspectRatio="none" {
                        @for y in ["0", "50", "100"] { line.grid x1="0" x2=(width) y1=(y) y2=(y) {} }
                        @if self.kind == PlotKind::Bars { (self.bars()) } @else { (self.lines()) }
                        @for (index, tip) in self.tips.iter().enumerate() {
                            rect.hit x=(index * STEP) y="0" width=(STEP) height=(HEIGHT) { title { (tip) } }
                        }
                    }
                    div.x aria-hidden="true" { @for time in &self.times { span { (time) } } }
                }
            }
        }
    }

    fn bars(&self) -> Markup {
        let mut bars = Vec::new();
        for index in 0..self.tips.len() {
            let mut base = 0.0;
            for series in &self.series {
                let height = series.values[index].map_or(0.0, |value| self.scale.height(value));
                if height > 0.0 {
                    bars.push((series.class, index * STEP + 1, HEIGHT - base - height, height));
                }
                base += height;
            }
        }
        html! {
            @for (class, x, y, height) in bars {
                rect class=(class) x=(x) y=(format!("{y:.1}")) width=(STEP - 2) height=(format!("{height:.1}")) {}
            }
        }
    }

    fn lines(&self) -> Markup {
        let point = |index: usize, value: f64| {
            format!("{} {:.1}", index * STEP + STEP / 2, HEIGHT - self.scale.height(value))
        };
        let path = |series: &PlotSeries<'_>| {
            let values = series.values.iter().enumerate();
            let points: Vec<String> =
                values.filter_map(|(index, value)| value.map(|value| point(index, value))).collect();
            let dots: String = points.iter().map(|at| format!("M{at}h0")).collect();
            (series.class, format!("M{}", points.join("L")), dots)
        };
        html! {
            @for (class, line, dots) in self.series.iter().map(path).filter(|(_, _, dots)| !dots.is_empty()) {
                path class=(format!("line {class}")) d=(line) {}
                path class=(format!("dots {class}")) d=(dots) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_reaches_above_every_value_and_its_half_is_a_round_number() {
        for (most, top, half) in [(0.0, 2.0, "1"), (3.0, 4.0, "2"), (5.0, 10.0, "5"), (41.0, 100.0, "50")] {
            let scale = Scale::of_counts(most);
            assert_eq!((scale.top, scale.say(scale.top / 2.0).as_str()), (top, half), "{most}");
        }
        for (most, top, half) in
            [(0.3, 2.0, "1 s"), (61.0, 120.0, "1 min"), (3601.0, 7200.0, "1 h"), (1e6, 1_036_800.0, "6 d")]
        {
            let scale = Scale::of_seconds(most);
            assert_eq!((scale.top, scale.say(scale.top / 2.0).as_str()), (top, half), "{most}");
        }
        assert_eq!(Scale::of_shares(0.3).say(0.25), "25 %");
        assert_eq!(Scale::of_shares(7.0).top, 1.0);
    }

    #[test]
    fn lengths_of_time_are_short() {
        for (seconds, words) in [
            (0.0, "0"),
            (0.42, "0.4 s"),
            (12.3, "12 s"),
            (90.0, "1.5 min"),
            (7200.0, "2 h"),
            (172_800.0, "2 d"),
        ] {
            assert_eq!(duration(seconds), words);
        }
    }

    fn plot(kind: PlotKind) -> String {
        let series =
            |name, class, values: [Option<f64>; 3]| PlotSeries { name, class, values: values.into() };
        Plot {
            id: "p",
            title: "Done".to_owned(),
            headline: html! { "7" },
            words: "seven".to_owned(),
            kind,
            series: vec![
                series("done", "good", [Some(1.0), None, Some(2.0)]),
                series("rejected", "bad", [Some(1.0), Some(0.0), None]),
            ],
            tips: ["one", "two <b>", "three"].map(str::to_owned).into(),
            scale: Scale::of_counts(4.0),
            times: vec!["10:00".to_owned(), "now".to_owned()],
        }
        .show()
        .into_string()
    }

    #[test]
    fn bars_of_all_series_share_one_scale() {
        let svg = plot(PlotKind::Bars);
        assert!(svg.contains(r#"<rect class="good" x="1" y="75.0" width="8" height="25.0">"#), "{svg}");
        assert!(svg.contains(r#"<rect class="bad" x="1" y="50.0" width="8" height="25.0">"#), "{svg}");
        assert!(svg.contains(r#"<rect class="good" x="21" y="50.0" width="8" height="50.0">"#), "{svg}");
        assert_eq!(
            svg.matches("<rect class=\"good\"").count() + svg.matches("<rect class=\"bad\"").count(),
            3
        );
        assert!(svg.contains("<title>two &lt;b&gt;</title>"), "{svg}");
        assert!(svg.contains("<span>4</span><span>2</span><span>0</span>"), "{svg}");
    }

    #[test]
    fn lines_connect_the_periods_that_have_a_value() {
        let svg = plot(PlotKind::Lines);
        assert!(svg.contains(r#"class="line good" d="M5 75.0L25 50.0""#), "{svg}");
        assert!(svg.contains(r#"class="dots bad" d="M5 75.0h0M15 100.0h0""#), "{svg}");
    }
}
