//! Tasks as other trackers write them: Backlog.md, beads, and GitHub issues.
//!
//! Invariant: nothing here is trusted. A field that is missing or of another type is left out; what has no id or no title
//! is a fault of that one item.

use std::fs;
use std::path::Path;

use clap::ValueEnum;
use serde_json::Value;
use tollgate::error::{At, Fault, Result};
use tollgate::vault::brief::{self, Priority};

/// The most bytes that are read from one source.
pub(super) const LARGEST: u64 = 64 << 20;

/// Who wrote the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tracker {
    /// A `backlog` folder of Backlog.md
    Backlog,
    /// The `issues.jsonl` of beads
    Beads,
    /// The JSON of `gh issue list --json number,title,body,labels,state,url`
    Github,
}

/// A task of another tracker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForeignTask {
    /// Its id there, as other tasks refer to it.
    pub(super) id: String,
    /// A name that no task of another project has.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) priority: Option<Priority>,
    /// The ids of the tasks that it waits for.
    pub(super) waits_for: Vec<String>,
    pub(super) is_open: bool,
    /// Where a person finds it.
    pub(super) origin: String,
}

/// An item of a source, or why it cannot be read.
pub(super) type ForeignItem = Result<ForeignTask, String>;

/// The tasks in a folder of Backlog.md: the folder `tasks`, or the one above it.
pub(super) fn backlog(folder: &Path) -> Result<Vec<ForeignItem>> {
    let below = folder.join("tasks");
    let folder = if below.is_dir() { &below } else { folder };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        let path = entry.at("read", folder)?.path();
        if path.extension().is_some_and(|extension| extension == "md") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let text = read_file(path).map_err(|fault| fault.to_string())?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        backlog_task(&text).map_err(|why| format!("`{file}`: {why}"))
    };
    Ok(paths.iter().map(read).collect())
}

/// A file as text, up to the bound.
pub(super) fn read_file(path: &Path) -> Result<String> {
    let len = fs::metadata(path).at("read", path)?.len();
    if len > LARGEST {
        return Err(Fault::invalid(format!("`{}` has more than 64 MiB", path.display())));
    }
    let bytes = fs::read(path).at("read", path)?;
    String::from_utf8(bytes).map_err(|_| Fault::invalid(format!("`{}` is not UTF-8", path.display())))
}

fn backlog_task(text: &str) -> ForeignItem {
    let text = text.replace("\r\n", "\n");
    let rest = text.strip_prefix("---\n").ok_or("it has no frontmatter")?;
    let (front, body) = rest.split_once("\n---\n").ok_or("its frontmatter has no end")?;
    let front = format!("---\n{front}\n---\n");
    let all = |key| brief::values(&front, key).map_err(|broken| broken.to_string());
    let one = |key| all(key).map(|values| values.into_iter().next());
    let id = one("id")?.ok_or("it has no id")?;
    let title = one("title")?.ok_or("it has no title")?;
    let status = one("status")?.unwrap_or_default().to_lowercase();
    Ok(ForeignTask {
        name: id.clone(),
        title,
        // The marks between which Backlog.md finds its sections say nothing to others.
        body: body.lines().filter(|line| !is_section_mark(line)).collect::<Vec<_>>().join("\n"),
        priority: one("priority")?.as_deref().and_then(Priority::read),
        waits_for: all("dependencies")?.iter().map(|id| id.to_lowercase()).collect(),
        is_open: !matches!(&*status, "done" | "complete" | "completed" | "closed" | "archived"),
        origin: format!("Backlog.md {id}"),
        // It writes the same id in capitals and without.
        id: id.to_lowercase(),
    })
}

fn is_section_mark(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("<!-- ") && (line.ends_with(":BEGIN -->") || line.ends_with(":END -->"))
}

/// The items of a JSON document, or of one JSON document per line; and why lines cannot be read.
pub(super) fn documents(text: &str) -> Result<(Vec<Value>, Vec<String>)> {
    let (mut items, mut bad) = (Vec::new(), Vec::new());
    for document in serde_json::Deserializer::from_str(text).into_iter() {
        match document {
            Ok(Value::Array(many)) => items.extend(many),
            Ok(one) => items.push(one),
            Err(error) => {
                // One bad line does not stop the others.
                items = objects(text, &mut bad);
                if items.is_empty() || text.trim_start().starts_with('[') {
                    return Err(Fault::invalid(format!("the source is not JSON: {error}")));
                }
                break;
            }
        }
    }
    Ok((items, bad))
}

/// The lines that are JSON objects; and why others are not.
fn objects(text: &str, bad: &mut Vec<String>) -> Vec<Value> {
    let mut items = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(item @ Value::Object(_)) => items.push(item),
            Ok(_) => bad.push(format!("line {} is not a JSON object", number + 1)),
            Err(error) => bad.push(format!("line {} is not JSON: {error}", number + 1)),
        }
    }
    items
}

/// Who wrote these documents.
pub(super) fn tracker_of(documents: &[Value]) -> Tracker {
    let is_github = documents.iter().any(|item| item["number"].is_u64());
    if is_github { Tracker::Github } else { Tracker::Beads }
}

fn text<'a>(item: &'a Value, key: &str) -> &'a str {
    item[key].as_str().unwrap_or_default()
}

/// An issue of beads.
pub(super) fn beads(item: &Value) -> ForeignItem {
    let id = text(item, "id");
    if id.is_empty() {
        return Err("an item has no id".to_owned());
    }
    let sections =
        [("", "description"), ("## Design", "design"), ("## Acceptance criteria", "acceptance_criteria")];
    let sections = sections.map(|(heading, key)| match text(item, key).trim() {
        "" => String::new(),
        text if heading.is_empty() => text.to_owned(),
        text => format!("{heading}\n\n{text}"),
    });
    let dependencies = item["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Others say where it comes from, or what it belongs to.
    let blockers = dependencies.iter().filter(|dependency| text(dependency, "type") == "blocks");
    let level = item["priority"].as_u64().and_then(|level| u8::try_from(level).ok());
    Ok(ForeignTask {
        id: id.to_owned(),
        name: id.to_owned(),
        title: text(item, "title").to_owned(),
        body: sections.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("\n\n"),
        priority: level.filter(|level| *level <= 4).map(Priority),
        waits_for: blockers.map(|dependency| text(dependency, "depends_on_id").to_owned()).collect(),
        is_open: !matches!(text(item, "status"), "closed" | "tombstone"),
        origin: format!("beads {id}"),
    })
}

/// An issue of GitHub.
pub(super) fn github(item: &Value) -> ForeignItem {
    let number = item["number"].as_u64().ok_or("an item has no number")?;
    let url = text(item, "url");
    // https://github.com/owner/repository/issues/12
    let mut parts = url.rsplit('/').skip(2);
    let project = parts.next().filter(|name| !name.is_empty()).unwrap_or("issue");
    let labels = item["labels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let labels = labels.iter().map(|label| label.as_str().unwrap_or_else(|| text(label, "name")));
    let name = format!("{project}-{number}");
    Ok(ForeignTask {
        id: name.clone(),
        name,
        title: text(item, "title").to_owned(),
        body: text(item, "body").to_owned(),
        priority: labels.filter_map(priority_label).min(),
        waits_for: Vec::new(),
        is_open: !text(item, "state").eq_ignore_ascii_case("closed"),
        origin: if url.is_empty() { format!("GitHub #{number}") } else { url.to_owned() },
    })
}

/// `P1`, `high`, `priority: high`, `priority/high`.
fn priority_label(label: &str) -> Option<Priority> {
    let label = label.trim().to_lowercase();
    let rest = label.strip_prefix("priority").map(|rest| rest.trim_start_matches([':', '/', '-', ' ']));
    // A bare number is no priority.
    let is_word = |label: &&str| label.parse::<u64>().is_err();
    Priority::read(rest.or_else(|| Some(&*label).filter(is_word))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_a_priority_are_known() {
        for (label, level) in
            [("P1", 1), ("priority: high", 1), ("Priority/Low", 3), ("critical", 0), ("priority-2", 2)]
        {
            assert_eq!(priority_label(label), Some(Priority(level)), "{label}");
        }
        for label in ["2", "bug", "priority", "high-level", ""] {
            assert_eq!(priority_label(label), None, "{label}");
        }
    }
}
