//! What the campaign found: a table for people, a document for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// What is different in a story that must lose data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Nothing is: nothing may be lost.
    None,
    /// tollgate does not flush.
    Fast,
    /// The disk forgets flushes.
    Forgetful,
}

/// What is wrong after a cut.
pub(crate) enum Finding {
    /// Something that was acknowledged is not there.
    Lost(String),
    /// Something is half done, or damaged.
    Torn(String),
    /// A command does not work, or says that a person must do something.
    Stuck(String),
}

/// How many messages are kept.
const LISTED: usize = 12;

/// The images of one file system under one condition.
pub(crate) struct Row {
    name: String,
    control: Control,
    pub(crate) images: usize,
    pub(crate) second_cuts: usize,
    lost: usize,
    torn: usize,
    stuck: usize,
    pub(crate) problems: Vec<String>,
}

impl Row {
    pub(crate) fn new(file_system: &str, control: Control) -> Self {
        let name = match control {
            Control::None => file_system.to_owned(),
            Control::Fast => format!("{file_system}, `fast` (control)"),
            Control::Forgetful => format!("{file_system}, a disk that forgets flushes (control)"),
        };
        Self { name, control, images: 0, second_cuts: 0, lost: 0, torn: 0, stuck: 0, problems: Vec::new() }
    }

    /// Adds what was found in one image.
    pub(crate) fn add(&mut self, image: &str, found: Vec<Finding>) {
        self.lost += usize::from(found.iter().any(|it| matches!(it, Finding::Lost(_))));
        self.torn += usize::from(found.iter().any(|it| matches!(it, Finding::Torn(_))));
        self.stuck += usize::from(found.iter().any(|it| matches!(it, Finding::Stuck(_))));
        for finding in found {
            let (word, what) = match finding {
                Finding::Lost(what) => ("lost", what),
                Finding::Torn(what) => ("torn", what),
                Finding::Stuck(what) => ("needs a person", what),
            };
            if self.problems.len() < LISTED {
                self.problems.push(format!("{image}: {word}: {what}"));
            }
        }
    }

    /// Adds the images of another row.
    pub(crate) fn take(&mut self, other: Self) {
        self.images += other.images;
        self.second_cuts += other.second_cuts;
        self.lost += other.lost;
        self.torn += other.torn;
        self.stuck += other.stuck;
        self.problems.extend(other.problems);
        self.problems.truncate(LISTED);
    }

    pub(crate) fn progress(&self, images: usize) -> String {
        let Self { name, lost, torn, stuck, .. } = self;
        format!("{name}: {} of {images} images: {lost} lost, {torn} torn, {stuck} need a person", self.images)
    }

    pub(crate) fn is_bad(&self) -> bool {
        self.lost + self.torn + self.stuck > 0
    }

    /// Nothing is wrong; or, in a control, something is lost.
    fn is_as_it_must_be(&self) -> bool {
        if self.control == Control::None { !self.is_bad() } else { self.lost > 0 }
    }
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) skipped: Vec<String>,
}

impl Report {
    fn is_kept(&self) -> bool {
        self.rows.iter().all(Row::is_as_it_must_be)
    }

    /// The exit status of the campaign.
    pub(crate) fn status(&self) -> u8 {
        match self.rows.is_empty() {
            true => 2,
            false => u8::from(!self.is_kept()),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "name": row.name, "control": row.control != Control::None, "images": row.images,
                "second_cuts": row.second_cuts, "lost": row.lost, "torn": row.torn, "needs_a_person": row.stuck,
                "problems": row.problems,
            })
        });
        json!({
            "kept": self.is_kept(), "seed": self.seed, "seconds": self.seconds, "rows": rows.collect::<Vec<_>>(),
            "skipped": self.skipped,
        })
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let heads = ["images", "cut twice", "lost", "torn", "need a person"];
        let [images, twice, lost, torn, stuck] = heads;
        writeln!(text, "{:<46}{images:>8}{twice:>11}{lost:>6}{torn:>6}{stuck:>15}", "file system")?;
        for row in &self.rows {
            let Row { name, images, second_cuts, lost, torn, stuck, .. } = row;
            writeln!(text, "{name:<46}{images:>8}{second_cuts:>11}{lost:>6}{torn:>6}{stuck:>15}")?;
        }
        for what in &self.skipped {
            writeln!(text, "skipped: {what}")?;
        }
        for row in &self.rows {
            if row.control != Control::None && !row.is_as_it_must_be() {
                writeln!(text, "broken: {} lost nothing, so this campaign proves nothing", row.name)?;
            }
            for problem in row.problems.iter().filter(|_| row.control == Control::None) {
                writeln!(text, "broken: {problem}")?;
            }
        }
        let images: usize =
            self.rows.iter().filter(|row| row.control == Control::None).map(|row| row.images).sum();
        let verdict = ["kept", "BROKEN", "skipped"][usize::from(self.status())];
        write!(text, "{verdict}: {images} images in {} s (seed {})", self.seconds, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A campaign of one image for each condition, with these findings.
    fn report(durable: Vec<Finding>, fast: Vec<Finding>, forgetful: Vec<Finding>) -> Report {
        let mut report = Report::default();
        for (control, found) in
            [(Control::None, durable), (Control::Fast, fast), (Control::Forgetful, forgetful)]
        {
            let mut row = Row::new("ext4", control);
            row.images = 1;
            row.add("image", found);
            report.rows.push(row);
        }
        report
    }

    fn lost() -> Vec<Finding> {
        vec![Finding::Lost("`a` is old".to_owned())]
    }

    #[test]
    fn a_campaign_passes_only_if_nothing_is_wrong_and_each_control_loses_something() {
        assert_eq!(report(vec![], lost(), lost()).status(), 0);
        for wrong in [Finding::Lost, Finding::Torn, Finding::Stuck] {
            let report = report(vec![wrong("what".to_owned())], lost(), lost());
            assert_eq!(report.status(), 1);
            assert!(report.table().contains("broken: image: "), "{}", report.table());
        }
        for (fast, forgetful) in [(vec![], lost()), (lost(), vec![])] {
            let report = report(vec![], fast, forgetful);
            assert_eq!(report.status(), 1);
            assert!(report.table().contains("so this campaign proves nothing"), "{}", report.table());
        }
        // A control that only gets stuck has not lost what was acknowledged.
        let stuck = || vec![Finding::Stuck("what".to_owned())];
        assert_eq!(report(vec![], stuck(), lost()).status(), 1);
    }

    #[test]
    fn a_campaign_without_images_has_not_passed() {
        let report = Report { skipped: vec!["no root".to_owned()], ..Report::default() };
        assert_eq!(report.status(), 2);
        assert!(report.table().ends_with("skipped: 0 images in 0 s (seed 0)"), "{}", report.table());
    }
}
