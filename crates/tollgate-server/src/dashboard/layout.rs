//! What all pages share: the frame, the way between pages, and how a part of it is exchanged.

use maud::{DOCTYPE, Markup, html};
use tollgate::digest::Digest;
use tollgate::vault::state::State;

use super::assets::{ICON, SCRIPT, STYLE};
use super::page::{Page, View, Visit};
use super::text::{Shown, count, plain};

/// The way between pages.
const SECTIONS: [(&str, &str); 6] = [
    ("/", "Board"),
    ("/approvals", "Approvals"),
    ("/agents", "Agents"),
    ("/conflicts", "Conflicts"),
    ("/turns", "Turns"),
    ("/ledger", "Ledger"),
];

const KEYS: [(&str, &str); 8] = [
    ("j  k", "next, previous"),
    ("Enter", "open"),
    ("a", "approve what is open"),
    ("r", "reject it: type the reason, Enter sends"),
    ("e", "edit it, then approve"),
    ("/", "filter"),
    ("Esc", "leave a field, close this"),
    ("?", "show these keys"),
];

/// The whole page.
pub(super) fn whole(visit: &Visit<'_>, page: &Page, view: &View) -> String {
    let waiting = waiting(visit);
    let parts = parts(visit, page, view).into_string();
    let root = visit.site.root().display().to_string();
    let folder = visit.site.root().file_name().map(|name| name.to_string_lossy().into_owned());
    let head = html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title(waiting, view)) }
            link rel="stylesheet" href=(STYLE.path);
            link rel="icon" type="image/svg+xml" href=(ICON.path);
            script src=(SCRIPT.path) defer {}
        }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head)
            body data-seen=(fingerprint(&parts)) {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    a.brand href="/" { "tollgate" }
                    span.workspace title=(plain(&root)) { (Shown(&folder.unwrap_or(root))) }
                    span #live title="whether this page follows what happens" {}
                }
                (super::text::made(parts))
                footer {
                    span { "tollgate " (env!("CARGO_PKG_VERSION")) }
                    a href="/health" { "health" }
                    a href="/metrics" { "metrics" }
                    button #show-keys type="button" hidden { "Keys " kbd { "?" } }
                }
                dialog #keys aria-labelledby="keys-title" {
                    h2 #keys-title { "Keys" }
                    dl { @for (key, what) in KEYS { dt { kbd { (key) } } dd { (what) } } }
                    form method="dialog" { button { "Close" } }
                }
            }
        }
    }
    .into_string()
}

/// The parts that are exchanged when something has happened, each by its id.
pub(super) fn parts(visit: &Visit<'_>, page: &Page, view: &View) -> Markup {
    let waiting = waiting(visit);
    html! {
        nav #nav aria-label="Pages" {
            ul {
                @for (path, name) in SECTIONS {
                    li {
                        a href=(path) aria-current=[(page.section() == path).then_some("page")] {
                            (name)
                            @if path == "/approvals" && waiting > 0 {
                                " " span.badge { (waiting) span.unseen { " waiting" } }
                            }
                        }
                    }
                }
            }
        }
        main #main tabindex="-1" data-title=(title(waiting, view)) { (view.main) }
        // Read out by screen readers when it changes, and by nothing else.
        p #news .unseen role="status" {
            @if waiting > 0 { (count(waiting, "task waits for approval", "tasks wait for approval")) }
        }
    }
}

/// By which a browser tells which state of a page it has. Ages do not count: they grow by themselves.
pub(super) fn fingerprint(parts: &str) -> String {
    let mut ageless = String::with_capacity(parts.len());
    for (index, part) in parts.split("<time ").enumerate() {
        match part.split_once("</time>") {
            Some((time, rest)) if index > 0 => {
                ageless.push_str(time.split_once('>').map_or(time, |(tag, _)| tag));
                ageless.push_str(rest);
            }
            _ => ageless.push_str(part),
        }
    }
    Digest::of(ageless.as_bytes()).to_string()[..16].to_owned()
}

fn title(waiting: usize, view: &View) -> String {
    let name = plain(&view.title);
    match waiting {
        0 => format!("{name} · tollgate"),
        waiting => format!("({waiting}) {name} · tollgate"),
    }
}

/// How many tasks wait for a person.
fn waiting(visit: &Visit<'_>) -> usize {
    match visit.site.board() {
        Ok(Some(board)) => board.column(State::PendingApproval).len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn only_ages_do_not_count() {
        let page = |name: &str, exact: &str, age: &str| {
            fingerprint(&format!("<p>{name} <time datetime=\"{exact}\" title=\"x\">{age}</time> end</p>"))
        };
        assert_eq!(page("a", "1", "5 s"), page("a", "1", "6 s"));
        assert_ne!(page("a", "1", "5 s"), page("a", "2", "5 s"));
        assert_ne!(page("a", "1", "5 s"), page("b", "1", "5 s"));
    }
}
