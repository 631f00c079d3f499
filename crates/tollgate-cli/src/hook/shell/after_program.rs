//! What happens after a program has started: what it prints, or what it runs.

use super::launch::Launched;
use super::word::Word;

/// What the shell does after a program.
pub(super) enum AfterProgram {
    /// The program prints exactly this.
    Prints(String),
    /// Nothing else is certain.
    Quiet,
    /// The shell runs this text itself.
    Eval(String),
    /// Another shell runs this text, with these arguments.
    Script(String, Vec<Word>),
    /// The program runs these commands.
    Launched(Launched),
}

impl AfterProgram {
    pub(super) fn prints(text: Option<String>) -> Self {
        text.map_or(Self::Quiet, Self::Prints)
    }
}
