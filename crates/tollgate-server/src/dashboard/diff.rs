//! Diffs on a page, and how large they are. Pure.

use maud::{Markup, html};
use tollgate::history::listing::{FileDiff, Size};

use super::links;
use super::text::{SafeText, count, plain};

/// The number of lines of one diff that are shown. A person does not read more on a page.
pub(super) const LINES: usize = 400;

/// A diff. Added and removed lines differ by sign and by colour. Shows at most this many lines.
pub(super) fn show_diff(diff: &str, file: &str, most: usize) -> Markup {
    let kind = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("---") || line.starts_with("+++") => "head",
        Some(b'+') => "add",
        Some(b'-') => "cut",
        Some(b'@') => "head",
        _ => "same",
    };
    let left = diff.lines().count().saturating_sub(most);
    html! {
        pre.diff tabindex="0" role="group" aria-label=(format!("diff of {}", plain(file))) {
            @for line in diff.lines().take(most) {
                @match kind(line) {
                    "add" => ins { (SafeText(line)) "\n" },
                    "cut" => del { (SafeText(line)) "\n" },
                    kind => span class=(kind) { (SafeText(line)) "\n" },
                }
            }
            @if left > 0 { span.head { "… " (count(left, "more line", "more lines")) } }
        }
    }
}

/// How many lines were added and removed.
pub(super) fn size(size: Size) -> Markup {
    html! {
        span.size {
            @match size {
                Size::Lines { added, removed } => {
                    span.good { "+" (added) span.unseen { " lines" } } " "
                    span.bad { "−" (removed) span.unseen { " lines" } }
                },
                Size::NotText => "not text, or large",
                Size::Link => "a symbolic link",
                Size::NotKept => "no longer kept",
            }
        }
    }
}

/// What a change did to one file.
pub(super) fn file_diff(file: &FileDiff, most: usize) -> Markup {
    let what = match (file.before, file.after) {
        (None, Some(_)) => "created",
        (Some(_), None) => "deleted",
        _ => "",
    };
    html! {
        section.changed-file {
            header { h2 { (links::file(&file.path)) } span.quiet { (what) } (size(file.size)) }
            (only_diff(file, most))
        }
    }
}

/// The same without its name and its size.
pub(super) fn only_diff(file: &FileDiff, most: usize) -> Markup {
    html! {
        @match (&file.diff, file.size) {
            (Some(diff), _) if diff.is_empty() => p.quiet { "The text is the same." },
            (Some(diff), _) => (show_diff(diff, &file.path, most)),
            (None, Size::NotKept) => p.quiet { "The bytes are no longer kept, so there is no diff." },
            (None, _) => p.quiet { "There is no diff of this file." },
        }
    }
}
