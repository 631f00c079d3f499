//! The frame that all pages share: the head, the navigation, and the parts that are updated live.

use axum::response::{Html, IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use tollgate::digest::Digest;
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;

use super::assets::{ICON, SCRIPT, STYLE};
use super::page::Page;
use super::text::{SafeText, count, made, plain};
use super::view::{PageContent, SECTIONS};
use super::visit::Visit;

const KEYS: [(&str, &str); 12] = [
    ("j  k", "next, previous; opens an approval"),
    ("Enter", "open"),
    ("a", "approve the open task"),
    ("c", "request changes: type them, then Enter"),
    ("r", "reject it: type the reason, then Enter"),
    ("e", "edit it"),
    ("u", "undo the decision"),
    ("n", "new task"),
    ("/  Ctrl K", "search everything"),
    ("f", "filter the queue"),
    ("Esc", "leave a field, close this"),
    ("?", "show these keys"),
];

/// The whole page as a response.
pub(super) async fn respond(visit: Visit, page: Page) -> Response {
    let site = visit.site.clone();
    let rendered = site
        .blocking(move |_| page.view(&visit).map(|view| (view.status, whole(&visit, &page, &view))))
        .await;
    match rendered {
        Ok((status, html)) => (status, Html(html)).into_response(),
        Err(fault) => fault.into_response(),
    }
}

fn whole(visit: &Visit, page: &Page, view: &PageContent) -> String {
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
            body data-seen=(fingerprint(&parts)) data-still[page.is_still()] {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    a.brand href="/" { "tollgate" }
                    span.workspace title=(plain(&root)) { (SafeText(&folder.unwrap_or(root))) }
                    form.find action="/search" role="search" aria-label="Search everything" {
                        input #find type="search" name="q" placeholder="Search" aria-label="Search everything" autocomplete="off"
                            spellcheck="false" aria-keyshortcuts="/ Control+K" value=[page.searched()];
                        div #found hidden {}
                    }
                    span #live title="whether this page is live" {}
                }
                (made(parts))
                footer {
                    span { "tollgate " (env!("CARGO_PKG_VERSION")) }
                    a href="/health" { "health" }
                    a href="/metrics" { "metrics" }
                    button #notify type="button" hidden { "Notify me of approvals" }
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

/// The parts that are replaced when something changes, each identified by its id.
pub(super) fn parts(visit: &Visit, page: &Page, view: &PageContent) -> Markup {
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
        div #banner {
            @for sentence in stopped(visit) {
                p.banner role="alert" { strong { "Breaker open. " } (SafeText(&sentence)) ". " a href="/agents" { "Agents" } }
            }
        }
        main #main tabindex="-1" data-title=(title(waiting, view)) { (view.main) }
        // Only for screen readers, which read it out when it changes.
        p #news .unseen role="status" data-newest=[newest(visit)] {
            @if waiting > 0 { (count(waiting, "task is waiting for approval", "tasks are waiting for approval")) }
        }
    }
}

/// Identifies the state of a page. Ages are left out, because the browser updates them by itself.
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

/// When the last task came to wait for approval, in milliseconds.
fn newest(visit: &Visit) -> Option<i64> {
    let board = visit.site.board().ok().flatten()?;
    board.column(State::PendingApproval).newest().map(Timestamp::as_millisecond)
}

fn title(waiting: usize, view: &PageContent) -> String {
    let name = plain(&view.title);
    match waiting {
        0 => format!("{name} · tollgate"),
        waiting => format!("({waiting}) {name} · tollgate"),
    }
}

/// A sentence for each worker that has stopped claiming tasks. A page that cannot know says nothing about it.
fn stopped(visit: &Visit) -> Vec<String> {
    let open = visit.site.open().ok().flatten();
    let figures = open.and_then(|open| open.vault.as_ref()?.figures(open.gate.workspace().now()).ok());
    figures.map_or(Vec::new(), |(_, each)| each.iter().filter_map(Figures::stopped).collect())
}

/// The number of tasks that wait for approval.
fn waiting(visit: &Visit) -> usize {
    match visit.site.board() {
        Ok(Some(board)) => board.column(State::PendingApproval).len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn the_fingerprint_ignores_ages_and_nothing_else() {
        let page = |name: &str, exact: &str, age: &str| {
            fingerprint(&format!("<p>{name} <time datetime=\"{exact}\" title=\"x\">{age}</time> end</p>"))
        };
        assert_eq!(page("a", "1", "5 s"), page("a", "1", "6 s"));
        assert_ne!(page("a", "1", "5 s"), page("a", "2", "5 s"));
        assert_ne!(page("a", "1", "5 s"), page("b", "1", "5 s"));
    }
}
