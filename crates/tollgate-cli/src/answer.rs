//! The answer of a command, as text and as JSON. `output` prints it.

use serde_json::Value;
use tollgate::guard::Refused;
use tollgate::visible::plain_json;

/// The form in which the caller wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text for people.
    Words,
    /// One JSON document.
    Json,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The command did its work.
    Done(Reply),
    /// The command did what it was asked to, and the text for people is a table. A terminal shows one line for each row, cut to its width.
    Table(Reply),
    /// The command did what it was asked to, and the text for people may be long. A terminal shows it in the user's pager.
    Long(Reply),
    /// The command ran, and its answer is no: not claimed, not valid, not decided. The exit code is 1.
    NotValid(Reply),
    /// `tollgate run`: its command ended. The exit code is usually the command's own.
    Exit(u8, Reply),
    /// The command ran, and has already written its output to stdout.
    Streamed,
    /// A change was refused, and nothing was changed.
    Refused(Refused),
    /// A change of several files was refused, and nothing was changed. In JSON, all refusals are listed.
    AllRefused(Refused),
    /// A read was refused. Stdout is reserved for the bytes of the file, so the refusal goes to stderr.
    ReadRefused(Refused),
}

/// What a command answers, for people and for programs.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// For people, on stdout, without the last newline. If empty, nothing is printed.
    pub(crate) words: String,
    /// Notes for people, on stderr.
    pub(crate) notes: String,
    /// For programs.
    pub(crate) json: Value,
}

impl Reply {
    pub(crate) fn new(words: String, json: Value) -> Self {
        Self { words, notes: String::new(), json }
    }

    /// People read it on stderr.
    pub(crate) fn noted(notes: String, json: Value) -> Self {
        Self { words: String::new(), notes, json }
    }

    pub(crate) fn stdout(&self, form: Form) -> String {
        match form {
            Form::Words => self.words.clone(),
            Form::Json => json_line(&self.json),
        }
    }

    /// The stdout of a refusal. Its hint is on stderr for people, and in the document for programs.
    pub(crate) fn refusal(&self, form: Form) -> String {
        let hint = self.notes.lines().find_map(|line| line.strip_prefix("hint: "));
        match (form, self.json.as_object(), hint) {
            (Form::Json, Some(json), Some(hint)) if !json.contains_key("hint") => {
                let mut json = json.clone();
                json.insert("hint".into(), hint.into());
                json_line(&json)
            }
            _ => self.stdout(form),
        }
    }

    pub(crate) fn stderr(&self, form: Form) -> String {
        match form {
            Form::Words => self.notes.clone(),
            Form::Json => String::new(),
        }
    }
}

/// One line of JSON that is safe to show on a terminal.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    // Serialising fails only for maps whose keys are not text. No answer has such a map.
    plain_json(&serde_json::to_string(value).unwrap_or_default())
}
