//! Words for the server: what it says before it serves.

use std::io::{self, Write};
use std::path::Path;

use super::{plain, shown};
use crate::answer::Stop;
use crate::door::Door;

/// Said at once on stdout, because the server goes on.
pub(crate) fn say(text: &str) -> Result<(), Stop> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    Ok(stdout.flush()?)
}

pub(crate) fn token_needed() -> Stop {
    Stop::usage(
        "a server that listens beyond this machine needs a token",
        "set `TOLLGATE_TOKEN` to a long random text, or leave `--listen` out",
    )
}

pub(crate) fn bad_token() -> Stop {
    Stop::usage(
        "`TOLLGATE_TOKEN` is not text",
        "set it to letters and digits, as `openssl rand -hex 16` prints them",
    )
}

pub(crate) fn agents_do_not_serve(agent: &str) -> Stop {
    Stop::usage(
        format!("`{}` is an agent, and on the pages of the server people decide", plain(agent)),
        "start it outside of the agent, or without `TOLLGATE_AGENT`",
    )
}

pub(crate) fn serving(door: &Door, url: &str, root: &Path, is_set_up: bool, demo: bool) -> String {
    let mut text = format!("dashboard {}\nworkspace `{}`", plain(url), shown(door, root));
    if demo {
        text += "\nthree agents and somebody at an editor are at work in it; it is removed at the end, by ctrl-c\n\
                 next: open the dashboard, and approve what waits";
    }
    if !is_set_up {
        text += "\nthis folder is not set up for tollgate, and nothing was made in it\n\
                 next: `tollgate init` writes `.tollgate/config.toml`; with `--vault` it also makes folders for tasks\n\
                 next: `tollgate init --host all` sets up the hooks of the agent programs that are found\n\
                 the page begins by itself when that is done";
    }
    text
}
