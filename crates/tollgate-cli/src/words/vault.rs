//! Copies of a vault.

use tollgate::vault::copy::{CopiedHistory, CopyDenial, CopyReport};
use tollgate::visible::plain;

pub(crate) fn copying(done: usize, all: usize) -> String {
    format!("copied {done} of {all} tasks")
}

pub(crate) fn vault_copied(report: &CopyReport, from: &str, to: &str) -> String {
    let all: usize = report.tasks.values().sum();
    let states: Vec<String> =
        report.tasks.iter().map(|(state, count)| format!("{count} in `{state}`")).collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    let history = match report.history {
        CopiedHistory::Added(count) => {
            format!("the history is complete; {count} events were added to the target")
        }
        CopiedHistory::AddedLatest(count) => format!(
            "the source no longer has its oldest events; {count} events were added to the target, and its figures count only these"
        ),
        CopiedHistory::OwnHistory => "the target has a history of its own, which stays as it is".to_owned(),
    };
    format!(
        "both vaults have the same {all} tasks{states}\n{history}\nsha256 {}\nnext: to use the copy from {from} in {to}, \
         name its store in `[vault] store` on every machine",
        report.digest
    )
}

pub(crate) fn not_copied(denial: &CopyDenial) -> String {
    let hint = match denial {
        CopyDenial::Working(_) => "stop the workers and wait until their tasks are released, then try again",
        CopyDenial::Occupied(..) => "copy to an empty vault, or move that task away",
        CopyDenial::Changed => {
            "make sure that nobody uses the vault, then run the command again: it continues where it stopped"
        }
    };
    format!("not copied: {}\nhint: {hint}", plain(&denial.to_string()))
}
