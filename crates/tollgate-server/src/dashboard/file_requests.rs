//! What a person asks for about files, with a form: undo a change or a turn, write a merge, dismiss a refusal.
//!
//! Invariant: nothing is done without a token of this server, nor if it is not what the page showed.

use axum::extract::{Form, Path};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::{Fault, MissingKind, Result};
use tollgate::event::{Event, Mutation};
use tollgate::gate::Gate;
use tollgate::guard::Outcome;
use tollgate::history::chosen::Which;
use tollgate::name::TurnId;
use tollgate::turn::Turn;
use tollgate::workspace::Workspace;

use super::layout;
use super::merge::{self, MergeQuery, merge_of, refusal};
use super::page::Page;
use super::refusals::ActedFrom;
use super::trouble::Trouble;
use super::undo::{UndoPlan, UndoQuery};
use super::visit::Visit;
use crate::site::{Site, SiteState};

/// The number of the newest ledger lines in which to look for a change that was made a moment ago.
const JUST_MADE: usize = 1000;

/// What the page showed.
#[derive(Deserialize)]
pub(super) struct SeenForm {
    token: String,
    seen: Digest,
}

#[derive(Deserialize)]
pub(super) struct DismissForm {
    token: String,
    #[serde(default)]
    from: String,
}

pub(super) async fn undo_change(visit: Visit, Path(line): Path<u64>, Form(form): Form<SeenForm>) -> Response {
    undo(visit, Which::Line(line), form).await
}

pub(super) async fn undo_turn(
    visit: Visit,
    Path(turn): Path<TurnId>,
    Form(form): Form<SeenForm>,
) -> Response {
    undo(visit, Which::Turn(turn), form).await
}

async fn undo(visit: Visit, which: Which, form: SeenForm) -> Response {
    let asked = which.clone();
    let made = carried_out(&visit, &form.token, move |site| undone(site, &asked, form.seen)).await;
    show_made(visit, made, |trouble| Page::Undo(UndoQuery::again(which, trouble))).await
}

pub(super) async fn write_merge(visit: Visit, Path(line): Path<u64>, Form(form): Form<SeenForm>) -> Response {
    let made = carried_out(&visit, &form.token, move |site| merged(site, line, form.seen)).await;
    show_made(visit, made, |trouble| Page::Merge(MergeQuery::again(line, trouble))).await
}

pub(super) async fn dismiss(visit: Visit, Path(line): Path<u64>, Form(form): Form<DismissForm>) -> Response {
    let from = ActedFrom::of(&form.from);
    let made = carried_out(&visit, &form.token, move |site| {
        let gate = gate(site)?;
        match refusal(gate.workspace(), line)? {
            Some(line) => gate.workspace().dismiss(&line).map(|()| Ok(None)),
            None => Ok(Err(Trouble::NotWritten(format!("line {line} of the ledger is not a refusal")))),
        }
    });
    match made.await {
        Ok(_) => Redirect::to(from.address()).into_response(),
        Err(trouble) => layout::respond(visit, Page::Workspace(Some(trouble))).await,
    }
}

/// Does what a form asks for, if the form came from our own page.
async fn carried_out(
    visit: &Visit,
    token: &str,
    make: impl FnOnce(&SiteState) -> Result<Result<Option<u64>, Trouble>> + Send + 'static,
) -> Result<Option<u64>, Trouble> {
    if !visit.sent(token) {
        return Err(Trouble::Forged);
    }
    let made = visit.site.blocking(move |site: &Site| make(site)).await;
    made.map_err(|fault| Trouble::NotWritten(fault.0.to_string()))?
}

/// Leads to the change that was made, or shows the page again.
async fn show_made(
    visit: Visit,
    made: Result<Option<u64>, Trouble>,
    again: impl FnOnce(Trouble) -> Page,
) -> Response {
    match made {
        Ok(Some(line)) => Redirect::to(&format!("/changes/{line}?made=true")).into_response(),
        Ok(None) => Redirect::to("/changes").into_response(),
        Err(trouble) => layout::respond(visit, again(trouble)).await,
    }
}

fn gate(site: &SiteState) -> Result<Gate> {
    let open = site.open()?.ok_or_else(|| Fault::missing(MissingKind::Path, "the workspace"))?;
    Ok(open.gate.clone())
}

/// A turn of the person, for one write.
fn turn(site: &SiteState) -> Result<Turn> {
    Ok(Turn::begin(TurnId::new()?, site.options.person.parse()?))
}

/// Undoes these changes, if the undo is the one that the page showed. Returns the ledger line of the undo.
fn undone(site: &SiteState, which: &Which, seen: Digest) -> Result<Result<Option<u64>, Trouble>> {
    let gate = gate(site)?;
    let Some(undo) = UndoPlan::make(gate.workspace(), which)? else {
        return Ok(Err(Trouble::NotWritten("the ledger has no such change".to_owned())));
    };
    if undo.fingerprint() != seen {
        return Ok(Err(Trouble::FilesChanged));
    }
    if !undo.is_possible() {
        return Ok(Err(Trouble::NotWritten("it cannot be undone".to_owned())));
    }
    match gate.apply_as(&turn(site)?, "undo", undo.plan.changes)? {
        Outcome::Done(applied) => {
            line_of(gate.workspace(), applied.first().map(|change| &*change.id)).map(Ok)
        }
        Outcome::Refused(refused) => Ok(Err(Trouble::NotWritten(refused.to_string()))),
    }
}

/// Writes the merge of a refused write, if it is the one that the page showed. Returns the ledger line of the merge.
fn merged(site: &SiteState, line: u64, seen: Digest) -> Result<Result<Option<u64>, Trouble>> {
    let gate = gate(site)?;
    let Some(line) = refusal(gate.workspace(), line)? else {
        return Ok(Err(Trouble::NotWritten("the ledger has no such refusal".to_owned())));
    };
    let turn = turn(site)?;
    let merge = match merge_of(&gate, &turn, &line)? {
        Ok(merge) => merge,
        Err(why) => return Ok(Err(Trouble::NotWritten(why.to_string()))),
    };
    if merge::fingerprint(&merge) != seen {
        return Ok(Err(Trouble::FilesChanged));
    }
    if !merge.clean {
        return Ok(Err(Trouble::NotWritten("both have changed the same lines".to_owned())));
    }
    match gate.write_merge(&turn, merge)? {
        Outcome::Done(applied) => {
            // The merge is written. If this fails, the refusal is shown as open, and a person can dismiss it.
            let _ = gate.workspace().dismiss(&line);
            line_of(gate.workspace(), Some(&applied.id)).map(Ok)
        }
        Outcome::Refused(refused) => Ok(Err(Trouble::NotWritten(refused.to_string()))),
    }
}

/// The ledger line of the change with this id, which was made a moment ago.
fn line_of(workspace: &Workspace, id: Option<&str>) -> Result<Option<u64>> {
    let Some(id) = id else { return Ok(None) };
    let mut lines = workspace.ledger().newest_first()?.take(JUST_MADE).flatten();
    let is_it = |event: &Event| matches!(event, Event::Mutation(Mutation::File(file), _) if file.id == id);
    Ok(lines.find(|line| is_it(&line.event)).map(|line| line.seq))
}
