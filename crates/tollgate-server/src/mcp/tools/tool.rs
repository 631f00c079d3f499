//! One tool: its name, its description, and the function that runs it.

use serde_json::{Map, Value};

use super::call::Call;
use super::schema::{Input, Output};
use crate::mcp::answer::Answer;

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) hints: Hints,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) run: fn(&Call<'_>, Value) -> Result<Answer, Answer>,
}

/// What a client may assume about a tool before it calls it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hints {
    Reads,
    Writes { destructive: bool, idempotent: bool },
}

impl Tool {
    /// The JSON Schema of the arguments.
    pub(crate) fn input_schema(&self) -> Map<String, Value> {
        self.input.schema()
    }

    /// The JSON Schema of `structuredContent`.
    pub(crate) fn output_schema(&self) -> Map<String, Value> {
        self.output.schema()
    }
}
