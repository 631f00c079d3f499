//! The Prometheus text format, version 0.0.4.

use std::fmt::Write;

use crate::sums::Histogram;

/// The content type, for the header.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Starts a metric family. Its samples must follow.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' });
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A family with one sample.
    pub(crate) fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A histogram family.
    #[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        let (sums, all) = histogram.cumulative();
        let bucket = format!("{name}_bucket");
        for (bound, sum) in histogram.bounds.iter().zip(sums) {
            self.sample(&bucket, &[("le", &bound.to_string())], sum as f64);
        }
        self.sample(&bucket, &[("le", "+Inf")], all as f64);
        self.sample(&format!("{name}_sum"), &[], histogram.sum);
        self.sample(&format!("{name}_count"), &[], all as f64);
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}
