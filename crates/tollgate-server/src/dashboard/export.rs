//! `/ledger/export`: the lines that match a filter as a file, the oldest first, each exactly as it stands in the ledger.
//!
//! The ledger may be larger than the memory, so it is read and sent in parts.

use std::io;

use axum::body::Body;
use axum::extract::Query;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::mpsc::{self, Sender};
use tollgate::error::Result;
use tollgate::ledger::{Followed, Ledger};

use super::ledger::{LedgerQuery, first_since};
use super::visit::Visit;
use crate::fault_response::FaultResponse;

/// The number of lines that are read at a time.
const LINES: usize = 5_000;

/// The number of parts that wait for a slow reader.
const PARTS: usize = 2;

type ExportPart = io::Result<Vec<u8>>;

pub(super) async fn get(visit: Visit, Query(query): Query<LedgerQuery>) -> Result<Response, FaultResponse> {
    let ledger = visit.site.open()?.map(|open| open.gate.workspace().ledger().clone());
    let (send, receive) = mpsc::channel(PARTS);
    if let Some(ledger) = ledger {
        tokio::task::spawn_blocking(move || {
            if let Err(fault) = read(&ledger, &query, &send) {
                // The reader sees that the file is not complete.
                let _ = send.blocking_send(Err(io::Error::other(fault.to_string())));
            }
        });
    }
    let parts = stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CONTENT_DISPOSITION, "attachment; filename=\"ledger.jsonl\""),
    ];
    Ok((headers, Body::from_stream(parts)).into_response())
}

fn read(ledger: &Ledger, query: &LedgerQuery, send: &Sender<ExportPart>) -> Result<()> {
    let first = query.times().0.map(|since| first_since(ledger, since)).transpose()?;
    // From the line before, if there is one.
    let start =
        first.map(|first| ledger.newest_before(first)).transpose()?.and_then(|mut lines| lines.next());
    let mut follower = match start {
        Some(Ok(line)) => ledger.follow_from(line.cursor()),
        _ => ledger.follow(),
    };
    loop {
        let mut part = Vec::new();
        let followed = follower.advance(LINES, |line| {
            if query.fits(&line) {
                part.extend_from_slice(line.text().as_bytes());
                part.push(b'\n');
            }
        })?;
        // An error means that the browser has gone.
        if !part.is_empty() && send.blocking_send(Ok(part)).is_err() {
            return Ok(());
        }
        match followed {
            Followed::Further => {}
            // An export is what is there. Whether it is intact is told on the ledger's page.
            Followed::Doubtful => follower.trust(),
            Followed::ToTheEnd | Followed::Lost(_) => return Ok(()),
        }
    }
}
