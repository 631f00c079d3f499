//! The late-write check: after the grace time, replaced files are checked again for writes that arrived late.
//!
//! The library makes the check when it is asked to. This file is the timer that asks, as long as a check is due.

use std::time::Duration;

use tokio::sync::Notify;
use tollgate::workspace::Workspace;
use tollgate_base::private;

/// Runs the checks for as long as it is polled. It sleeps until `changed` reports a change.
pub(crate) async fn after_each(changed: &Notify, workspace: impl Fn() -> Option<Workspace>) {
    loop {
        changed.notified().await;
        if let Some(workspace) = workspace() {
            until_nothing_is_due(&workspace).await;
        }
    }
}

async fn until_nothing_is_due(workspace: &Workspace) {
    // With a grace time of zero this would be a busy loop.
    let grace = workspace.settings().guard.grace.0.max(Duration::from_millis(50));
    loop {
        tokio::time::sleep(grace).await;
        let workspace = workspace.clone();
        let swept = tokio::task::spawn_blocking(move || {
            // If a sweep fails, the files stay in place and the next sweep, by any process, finds them.
            let _ = workspace.sweep();
            let stage = workspace.state_path().join("stage");
            private::names(&stage).is_ok_and(|names| !names.is_empty())
        });
        if !swept.await.unwrap_or(false) {
            return;
        }
    }
}
