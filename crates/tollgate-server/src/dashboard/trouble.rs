//! Why something that a person asked for was not done, as a notice on the page.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::text::SafeText;

/// Why it was not done.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// The task is not what the page showed.
    Changed,
    /// The files are not what the page showed.
    FilesChanged,
    /// Files were not written, for this reason.
    NotWritten(String),
    /// The form did not come from a page of this server, or it is older than the last restart.
    Forged,
    /// A rejection, or a request for changes, without a reason.
    NoReason,
    /// Another reason, as a sentence.
    Other(String),
}

impl Trouble {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Forged => StatusCode::FORBIDDEN,
            Self::NoReason => StatusCode::BAD_REQUEST,
            Self::Changed | Self::FilesChanged | Self::NotWritten(_) | Self::Other(_) => StatusCode::CONFLICT,
        }
    }

    /// The notice. `typed` is what the person had written for it.
    pub(super) fn show(&self, typed: Option<&str>) -> Markup {
        html! {
            div.alert role="alert" {
                p {
                    @match self {
                        Self::Changed => {
                            strong { "The task was changed while you were looking at it." }
                            " Nothing was decided. Below is the current version; decide again."
                        },
                        Self::FilesChanged => {
                            strong { "The files were changed while you were looking at this page." }
                            " Nothing was written. Below is what would be written now; decide again."
                        },
                        Self::NotWritten(sentence) => { strong { "Nothing was written." } " " (SafeText(sentence)) "." },
                        Self::Forged => {
                            strong { "This form did not come from this page." }
                            " Nothing was decided. The server may have been restarted since you opened the page; decide again."
                        },
                        Self::NoReason => {
                            strong { "This decision needs a reason." }
                            " Nothing was decided. Give a reason, so that the author or the agent can act on it."
                        },
                        Self::Other(sentence) => { strong { "Nothing was decided." } " " (SafeText(sentence)) "." },
                    }
                }
                @if let Some(typed) = typed {
                    p { "You had written:" }
                    pre.typed tabindex="0" { (SafeText(typed)) }
                }
            }
        }
    }
}
