//! The second look: what guarded writes replaced is looked at once more after the grace time.
//!
//! The library takes that look when it is asked. This is the timer that asks, while something waits for it.

use std::time::Duration;

use tokio::sync::Notify;
use tollgate::workspace::Workspace;

/// Runs for as long as it is polled. Until it is told of a change it sleeps and costs nothing.
pub(crate) async fn after_each(changed: &Notify, workspace: impl Fn() -> Option<Workspace>) {
    loop {
        changed.notified().await;
        if let Some(workspace) = workspace() {
            until_nothing_waits(&workspace).await;
        }
    }
}

async fn until_nothing_waits(workspace: &Workspace) {
    // A grace time of nothing must not make this a busy loop.
    let grace = workspace.settings().guard.grace.0.max(Duration::from_millis(50));
    loop {
        tokio::time::sleep(grace).await;
        let workspace = workspace.clone();
        let looked = tokio::task::spawn_blocking(move || {
            // What fails stays where it is: the next sweep, of whichever process, finds it.
            let _ = workspace.sweep();
            let stage = workspace.state_path().join("stage");
            std::fs::read_dir(stage).is_ok_and(|mut names| names.next().is_some())
        });
        if !looked.await.unwrap_or(false) {
            return;
        }
    }
}
