//! One tool: its name, its description, and the function that runs it.

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::schema::{Input, Output};
use crate::mcp::answer::ToolAnswer;

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) hints: Hints,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) run: fn(&ToolCall<'_>, Value) -> Result<ToolAnswer, ToolAnswer>,
}

/// What a client may assume about a tool before it calls it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hints {
    Reads,
    Writes { destructive: bool, idempotent: bool },
}

impl Hints {
    /// Replaces what is there. Twice is the same as once.
    pub(super) const OVERWRITES: Self = Self::Writes { destructive: true, idempotent: true };
    /// Replaces what is there. Twice is not the same as once.
    pub(super) const CHANGES: Self = Self::Writes { destructive: true, idempotent: false };
    /// Replaces nothing. Twice is the same as once.
    pub(super) const ADDS: Self = Self::Writes { destructive: false, idempotent: true };
    /// Replaces nothing. Twice is not the same as once.
    pub(super) const STEPS: Self = Self::Writes { destructive: false, idempotent: false };
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
