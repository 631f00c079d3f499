//! What the server prints when it starts.

use std::path::Path;

use tollgate::name::Agent;
use tollgate::visible::plain;

use super::text::{Viewpoint, shown};

/// The workspace names a command or a webhook for notices that the user has not agreed to.
pub(crate) const NOTIFY_NOT_TRUSTED: &str = "no notices are sent: you have not agreed to `[notify]` in this workspace's configuration\n\
    hint: run `tollgate trust`, then start the server again\n";

pub(crate) fn serving(view: &Viewpoint, url: &str, root: &Path, is_set_up: bool, demo: bool) -> String {
    let mut text = format!("dashboard {}\nworkspace `{}`", plain(url), shown(view, root));
    if demo {
        text += "\nfour agents and somebody at an editor work in it; press Ctrl-C to stop and delete it\n\
                 next: open the dashboard and approve the waiting tasks";
    }
    if !is_set_up {
        text += "\nthis folder is not set up for tollgate; nothing was created in it\n\
                 next: run `tollgate init` to write `.tollgate/config.toml`; with `--vault` it also creates folders for tasks\n\
                 next: run `tollgate init --host all` to install hooks for the agent programs found here\n\
                 the page updates once the folder is set up";
    }
    text
}

/// How the agent of this run reaches the server.
pub(crate) fn agent_of_server(agent: &Agent, url: &str, token: &str) -> String {
    format!("\nagent `{agent}` {} with the header `Authorization: Bearer {}`", plain(url), plain(token))
}
