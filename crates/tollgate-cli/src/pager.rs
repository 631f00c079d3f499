//! The user's pager, for long texts on a terminal.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use crate::surroundings::Surroundings;

/// Shows a text in the pager, if stdout is a terminal and the user wants one. Returns whether it was shown.
pub(crate) fn show(text: &str) -> bool {
    if text.is_empty() || !io::stdout().is_terminal() {
        return false;
    }
    let Some(pager) = Surroundings::pager() else { return false };
    let mut command = Command::new("sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    // Quit if it fits on one page, with colours, and leave the text on the screen. As git does.
    if !Surroundings::is_set("LESS") {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        // The user may leave the pager before it has read everything.
        let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
    }
    // 127: the shell did not find it, so nothing was shown.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}
