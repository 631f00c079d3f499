//! The parts of a task file: the author's text, the draft, and the block of each attempt. Pure.
//!
//! It reads what [`block`](crate::block) writes and skips what it does not know.

use std::ops::Range;

use crate::block::{COMPLETION, DECISION, DRAFT, HINT, OPENING, OUTPUT, PROGRESS, RETRIED};

/// The parts of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Anatomy<'a> {
    /// The text between the `---` lines at the start.
    pub frontmatter: Option<&'a str>,
    /// The rest of the author's text.
    pub body: &'a str,
    /// The range of the latest draft, without its heading. A draft that a person has sent back does not count.
    pub draft: Option<Range<usize>>,
    /// The attempts, the oldest first.
    pub attempts: Vec<Attempt<'a>>,
    /// The last decision, as written in the file under its heading.
    pub decision: Option<&'a str>,
}

/// One attempt, from its block in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// The id of the claim.
    pub claim_id: &'a str,
    /// Who claimed the task.
    pub agent: Option<&'a str>,
    /// When, as written in the file.
    pub claimed_at: Option<&'a str>,
    /// The agent's progress notes, without the draft.
    pub notes: &'a str,
    /// When the attempt ended.
    pub completed_at: Option<&'a str>,
    /// How long it took.
    pub seconds: Option<&'a str>,
    /// How it ended.
    pub result: Option<&'a str>,
    /// The state that the task went to.
    pub next: Option<&'a str>,
    /// What the worker, or tollgate, says about it.
    pub note: Option<&'a str>,
    /// The end of what the command printed, if it failed.
    pub output: Option<String>,
}

impl<'a> Anatomy<'a> {
    /// The parts of this text.
    pub fn of(text: &'a str) -> Self {
        let openings: Vec<usize> =
            lines(text).filter(|(_, line)| line.starts_with(OPENING)).map(|(at, _)| at).collect();
        let author = &text[..openings.first().copied().unwrap_or(text.len())];
        let (frontmatter, body) = split_frontmatter(author);
        let retried = |at: &&usize| is_retry(&text[**at..]);
        let offered = openings.iter().rfind(retried).copied().unwrap_or(0);
        let mut anatomy = Self { frontmatter, body, draft: draft(text, offered), ..Self::default() };
        // A `## Draft` in the author's own text is shown only once, as the draft.
        if let Some(draft) = &anatomy.draft
            && draft.start <= author.len()
        {
            let end = lines(author).filter(|(_, line)| line.trim_end() == DRAFT).map(|(at, _)| at).last();
            let start = author.len() - body.len();
            anatomy.body = end.filter(|end| *end >= start).map_or(body, |end| &text[start..end]);
        }
        for (index, at) in openings.iter().enumerate() {
            let block = &text[*at..openings.get(index + 1).copied().unwrap_or(text.len())];
            let name = block[OPENING.len()..].split_whitespace().next().unwrap_or_default();
            if name == "decision" {
                let decision = block.split_once('\n').map(|(_, rest)| rest.trim());
                anatomy.decision = decision.map(|text| text.strip_prefix(DECISION).unwrap_or(text));
            } else {
                anatomy.attempts.push(Attempt::of(name, block));
            }
        }
        anatomy
    }
}

impl<'a> Attempt<'a> {
    fn of(claim_id: &'a str, block: &'a str) -> Self {
        let end = section(block, COMPLETION).unwrap_or(block.len());
        let (work, completion) = block.split_at(end);
        let notes = section(work, PROGRESS).map_or("", |at| &work[at + PROGRESS.len()..]);
        let notes = section(notes, DRAFT).map_or(notes, |at| &notes[..at]).trim();
        Self {
            claim_id,
            agent: field(work, "Claimed By"),
            claimed_at: field(work, "Claimed At"),
            notes: notes.strip_prefix(HINT).unwrap_or(notes).trim(),
            completed_at: field(completion, "Completed At"),
            seconds: field(completion, "Duration"),
            result: field(completion, "Result"),
            next: field(completion, "Next State"),
            note: field(completion, "Note"),
            output: output(completion),
        }
    }
}

/// Each line with its position.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line)
    })
}

/// The position of the first line with this heading.
fn section(text: &str, heading: &str) -> Option<usize> {
    lines(text).find(|(_, line)| line.trim_end() == heading).map(|(at, _)| at)
}

/// Whether the block that this text begins with says that a person wants the task to be tried again.
fn is_retry(text: &str) -> bool {
    let mut lines = text.lines();
    lines.next().is_some_and(|line| line.starts_with(OPENING) && line.contains(" decision "))
        && lines.take_while(|line| !line.starts_with(OPENING)).any(|line| field(line, RETRIED).is_some())
}

/// From the last `## Draft` after this position to the next line that tollgate writes, or to the end.
fn draft(text: &str, offered: usize) -> Option<Range<usize>> {
    let drafts = lines(text).filter(|(at, line)| *at >= offered && line.trim_end() == DRAFT);
    let (at, line) = drafts.last()?;
    let start = at + line.len();
    let mut after = lines(&text[start..]);
    let end = after.find(|(_, line)| line.trim_end() == COMPLETION || line.starts_with(OPENING));
    Some(start..end.map_or(text.len(), |(at, _)| start + at))
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix("**")?.strip_prefix(name)?.strip_prefix("**:");
    lines(text).find_map(|(_, line)| value(line)).map(str::trim).filter(|value| !value.is_empty())
}

/// The indented lines under [`OUTPUT`].
fn output(completion: &str) -> Option<String> {
    let (at, line) = lines(completion).find(|(_, line)| line.trim_end() == OUTPUT)?;
    let below = completion[at + line.len()..].lines().skip_while(|line| line.is_empty());
    let printed: Vec<&str> =
        below.map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some(""))).collect();
    Some(printed.join("\n").trim_end().to_owned()).filter(|printed| !printed.is_empty())
}

fn split_frontmatter(text: &str) -> (Option<&str>, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut fences = lines(text).filter(|(_, line)| line.trim_end() == "---");
    match (fences.next(), fences.next()) {
        (Some((0, first)), Some((end, last))) => (Some(&text[first.len()..end]), &text[end + last.len()..]),
        _ => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::block::{self, Completion, Verdict};
    use crate::state::State;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_794_000_000 + second).unwrap()
    }

    /// A file that `block` has written after the author's text.
    fn written(author: &str, draft: &str, verdict: Verdict, output: Option<&str>) -> String {
        let id = "c-0123456789abcdef".parse().unwrap();
        let opened = block::open(Some(b'\n'), &id, &"x".parse().unwrap(), &"cloud".parse().unwrap(), at(0));
        let work = [opened, block::progress(at(60), "half way"), block::draft(draft)].concat();
        let completion = Completion {
            at: at(120),
            duration_s: 120,
            verdict,
            next: State::PendingApproval,
            note: Some("ready".into()),
            output: output.map(str::to_owned),
        };
        let closed = String::from_utf8(block::close(work.as_bytes(), &completion)).unwrap();
        [author, &closed, &block::rejection(Some(b'\n'), "me", "no", at(180))].concat()
    }

    #[test]
    fn every_part_that_is_written_is_found() {
        let author = "---\naction: pay\n---\n# Pay\n\nten coins\n";
        let file = written(author, "## To\n\nten coins to Ada", Verdict::Success, None);
        let anatomy = Anatomy::of(&file);
        assert_eq!((anatomy.frontmatter, anatomy.body), (Some("action: pay\n"), "# Pay\n\nten coins\n"));
        assert_eq!(&file[anatomy.draft.clone().unwrap()], "\n## To\n\nten coins to Ada\n\n");
        assert_eq!(
            anatomy.attempts,
            [Attempt {
                claim_id: "c-0123456789abcdef",
                agent: Some("cloud"),
                claimed_at: Some("2026-11-06T21:20:00Z"),
                notes: "- 2026-11-06T21:21:00Z half way",
                completed_at: Some("2026-11-06T21:22:00Z"),
                seconds: Some("120"),
                result: Some("success"),
                next: Some("Pending_Approval"),
                note: Some("ready"),
                output: None,
            }]
        );
        let decision = "\n\n**Rejected By**: me\n**Rejected At**: 2026-11-06T21:23:00Z\n**Reason**: no";
        assert_eq!(anatomy.decision, Some(decision));
        let question = block::question(None, "why", at(0));
        assert_eq!(
            Anatomy::of(&question).decision,
            Some(" needed\n\n**Asked At**: 2026-11-06T21:20:00Z\n**Reason**: why")
        );
    }

    #[test]
    fn missing_parts_stay_empty() {
        for text in ["", "plain", "---\nopen", "a\n---\nb\n---\n"] {
            let anatomy = Anatomy::of(text);
            assert_eq!(anatomy, Anatomy { body: text, ..Anatomy::default() }, "{text:?}");
        }
        let odd = Anatomy::of("<!-- tollgate");
        assert_eq!(odd.attempts, []);
        let open = Anatomy::of("x\n<!-- tollgate c-2 -->\n");
        assert_eq!((open.body, open.attempts.len()), ("x\n", 1));
    }

    #[test]
    fn the_output_of_a_failed_command_is_found() {
        let text = written("x\n", "y", Verdict::Failure, Some("one\n  two\n\nthree\n"));
        let anatomy = Anatomy::of(&text);
        assert_eq!(anatomy.attempts[0].output.as_deref(), Some("one\n  two\n\nthree"));
        assert_eq!(anatomy.attempts[0].note, Some("ready"));
        assert_eq!(Anatomy::of("<!-- tollgate c-1 -->\n**Output**:\n    x\n").attempts[0].output, None);
    }

    #[test]
    fn a_draft_that_was_sent_back_is_no_draft() {
        let at = Timestamp::UNIX_EPOCH;
        let first = written("a\n", "ten coins", Verdict::Success, None);
        let decided = |text: &str, decision: &str| format!("{text}{decision}");
        let rejected = decided(&first, &block::rejection(Some(b'\n'), "me", "no", at));
        assert_eq!(
            Anatomy::of(&rejected).draft.map(|draft| rejected[draft].trim().to_owned()),
            Some("ten coins".into())
        );
        let sent_back = decided(&first, &block::retry(Some(b'\n'), "me", Some("nine"), at));
        let anatomy = Anatomy::of(&sent_back);
        assert_eq!(anatomy.draft, None);
        assert!(anatomy.decision.unwrap().contains("**Reason**: nine"), "{anatomy:?}");
        let again = written(&sent_back, "nine coins", Verdict::Success, None);
        assert_eq!(
            Anatomy::of(&again).draft.map(|draft| again[draft].trim().to_owned()),
            Some("nine coins".into())
        );
    }

    #[test]
    fn a_draft_in_the_authors_text_is_shown_once() {
        let text = "# Pay\n\n## Draft\n\nten\n";
        let anatomy = Anatomy::of(text);
        assert_eq!((anatomy.body, &text[anatomy.draft.unwrap()]), ("# Pay\n\n", "\nten\n"));
    }
}
