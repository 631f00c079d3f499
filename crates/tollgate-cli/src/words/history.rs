//! What was changed, by whom.

use std::path::Path;

use jiff::Timestamp;
use tollgate::history::blame::{BlamedLine, Writer};
use tollgate::history::listing::{FileDiff, PastChange, Size};
use tollgate::history::step::{Step, What};
use tollgate::visible::plain;
use tollgate_base::working_tree::BlamedCommit;

use super::reads::{reads, record};
use super::recovery::indented;
use super::text::{Viewpoint, ago, count, moment, short, shown};
use crate::report::history::ShownChanges;

/// The number of files that a change on one line names.
const NAMED: usize = 3;

pub(crate) const NO_CHANGE_MATCHES: &str = "note: no change matches\nhint: leave out options to see more; `tollgate ledger tail` has everything else that is recorded";

pub(crate) fn nothing_recorded(what: &str) -> String {
    format!("the ledger has no change of {what}\nhint: run `tollgate history` to see all changes")
}

pub(crate) const NOT_KEPT: &str = "refused: the bytes that it held then are no longer kept\nhint: `[history]` in the settings says for how long they are";

pub(crate) fn nothing_known_then(path: &str) -> String {
    format!(
        "the ledger does not know what `{}` held then\nhint: run `tollgate history FILE` to see its changes",
        plain(path)
    )
}

/// The diff of each file.
pub(crate) fn file_diffs(files: &[FileDiff]) -> String {
    files.iter().map(file_diff).collect::<String>().trim_start_matches('\n').to_owned()
}

/// A file that is to be restored.
pub(crate) fn file_to_restore(view: &Viewpoint, path: &Path, is_deleted: bool, diff: Option<&str>) -> String {
    let path = shown(view, path);
    let words =
        if is_deleted { format!("`{path}` did not exist then, and is deleted") } else { format!("`{path}`") };
    match diff {
        Some(diff) => words + &indented(diff),
        None => words + "\n    not shown: not text, or too large",
    }
}

/// One line for each change.
pub(crate) fn history(changes: &[PastChange]) -> String {
    changes.iter().map(change_line).collect::<Vec<_>>().join("\n")
}

fn change_line(change: &PastChange) -> String {
    let first = &change.steps[0];
    let agent = first.agent.as_ref().map_or("-", |agent| agent.as_str());
    let mut files: Vec<String> = change.steps.iter().take(NAMED).map(file).collect();
    if change.steps.len() > NAMED {
        files.push(format!("and {} more", change.steps.len() - NAMED));
    }
    let turn = first.turn.as_ref().map_or(String::new(), |turn| format!("  {turn}"));
    let task = first.task.as_ref().map_or(String::new(), |task| format!("  {}", plain(task.as_str())));
    let (time, size, tool) = (moment(first.time), size_words(change.size), plain(&first.tool));
    format!("{:>6}  {time}  {agent}  {}  {size}  {tool}{turn}{task}", first.change, files.join(", "))
}

fn file(step: &Step) -> String {
    let folder = if step.what == What::Folder { "/" } else { "" };
    let path = short(&plain(&step.path));
    match &step.moved_to {
        Some(to) => format!("{path}{folder} -> {}{folder}", short(&plain(to))),
        None => path,
    }
}

fn size_words(size: Size) -> String {
    match size {
        Size::Lines { added, removed } => format!("+{added} -{removed}"),
        Size::NotText => "(not text, or large)".to_owned(),
        Size::Link => "(a symbolic link)".to_owned(),
        Size::NotKept => "(no longer kept)".to_owned(),
    }
}

/// Changes with their diffs.
pub(crate) fn shown_changes(view: &Viewpoint, changes: &ShownChanges<'_>) -> String {
    let (first, last) = (changes.steps[0], changes.steps[changes.steps.len() - 1]);
    let agents: Vec<_> = changes.steps.iter().map(|step| &step.agent).collect();
    let by = match (&first.agent, agents.windows(2).all(|pair| pair[0] == pair[1])) {
        (Some(agent), true) => format!(" by `{agent}`"),
        (_, true) => String::new(),
        (_, false) => " by several agents".to_owned(),
    };
    let mut words = format!("{}{by}, {} ({})", changes.what, moment(first.time), ago(view.now, first.time));
    if last.change != first.change {
        let mut numbers: Vec<u64> = changes.steps.iter().map(|step| step.change).collect();
        numbers.dedup();
        words += &format!(": {}, the last {}", count(numbers.len(), "change"), ago(view.now, last.time));
    }
    if let Some(turn) = &first.turn
        && changes.steps.iter().all(|step| step.turn == first.turn)
    {
        words += &format!("\n  turn  {turn}");
    }
    if let Some(task) = &first.task
        && changes.steps.iter().all(|step| step.task == first.task)
    {
        words += &format!("\n  task  {}", plain(task.as_str()));
    }
    words += &format!("\n  by    {}", plain(&first.tool));
    words += &changes.about.map_or(String::new(), record);
    words += &format!("\n  read  {}", reads(&changes.reads));
    for step in &changes.steps {
        if step.moved_to.is_some() {
            words += &format!("\nmoved {}", file(step));
        }
    }
    changes.files.iter().for_each(|file| words += &file_diff(file));
    words
}

/// A file and its diff, indented by four spaces: so a terminal paints it.
fn file_diff(file: &FileDiff) -> String {
    let what = match (file.before, file.after) {
        (None, Some(_)) => ", created",
        (Some(_), None) => ", deleted",
        _ => "",
    };
    let mut words = format!("\n`{}`{what}  {}", short(&plain(&file.path)), size_words(file.size));
    for line in file.diff.as_deref().unwrap_or_default().lines() {
        words.push('\n');
        words += format!("    {}", plain(line)).trim_end();
    }
    words
}

/// Each line of a file behind its writer.
pub(crate) fn blamed<'t>(lines: &[BlamedLine], text: impl Fn(&BlamedLine) -> &'t str) -> String {
    let rows: Vec<[String; 3]> = lines.iter().map(writer).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (who, which) = (width(0), width(1));
    let number = lines.last().map_or(1, |line| line.number.to_string().len());
    let row = |([by, seq, time], line): (&[String; 3], &BlamedLine)| {
        let text = plain(&text(line).replace('\t', "    "));
        let row = format!("{by:<who$}  {seq:>which$}  {time:<16}  {:>number$}) {text}", line.number);
        row.trim_end().to_owned()
    };
    rows.iter().zip(lines).map(row).collect::<Vec<_>>().join("\n")
}

/// Who, with which change, and when.
fn writer(line: &BlamedLine) -> [String; 3] {
    let minute = |time: Timestamp| time.strftime("%Y-%m-%d %H:%M").to_string();
    match &line.writer {
        Writer::Step(step) => {
            let agent = step.agent.as_ref().map_or("-", |agent| agent.as_str());
            [agent.to_owned(), step.seq.to_string(), minute(step.time)]
        }
        Writer::SomebodyElse { before, .. } => {
            ["somebody else".to_owned(), "-".to_owned(), before.map_or(String::new(), minute)]
        }
        Writer::OneOf { steps, others } => {
            let mut names: Vec<&str> =
                steps.iter().filter_map(|step| Some(step.agent.as_ref()?.as_str())).collect();
            names.dedup();
            names.extend(others.then_some("somebody else"));
            let seqs = match (steps.first(), steps.last()) {
                (Some(first), Some(last)) if first.seq != last.seq => format!("{}..{}", first.seq, last.seq),
                (Some(only), _) => only.seq.to_string(),
                (None, _) => "-".to_owned(),
            };
            [names.join(" or "), seqs, steps.last().map_or(String::new(), |last| minute(last.time))]
        }
        Writer::Older => match &line.commit {
            Some(BlamedCommit { commit, author, time }) => {
                let time = Timestamp::from_second(*time).map_or(String::new(), minute);
                [short(&plain(author)), commit.chars().take(8).collect(), time]
            }
            None => ["before".to_owned(), "-".to_owned(), String::new()],
        },
    }
}
