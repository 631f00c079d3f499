//! Calls that do not say which files they change: unknown tools, commands that cannot be followed, workspaces further up that
//! only watch, and commands of tollgate under another name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::error::Fault;
use tollgate::guard::Change;
use tollgate::path::FilePath;
use tollgate::settings::GuardMode;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, FileState, Sighting};
use tollgate_base::glob::NamePattern;

use super::{Acting, PlannedCall};
use crate::error::CliError;
use crate::hook::pending_call::hash_of;
use crate::hook::plan::{ActsAs, ToolPlan};
use crate::hook::shown::has_word;
use crate::host::event::{Call, ToolEffects};
use crate::words;

impl Acting<'_> {
    /// The answer to a command of tollgate that acts under another name than the agent's own. A subagent has its own name for
    /// files, because its turn knows other versions of them, and works on the tasks of its session.
    pub(super) fn acts_as_another(&self, call: &Call, plan: &ToolPlan) -> Result<Option<Value>, CliError> {
        if self.gate.workspace().settings().guard.mode != GuardMode::Enforce {
            return Ok(None);
        }
        let own = |acts: &ActsAs| match acts.command.starts_with("tollgate task ") {
            true => self.session.claims_as(),
            false => self.session.agent(),
        };
        let is_named = self.invocation.is_named_by_variable();
        let another = plan.acts_as.iter().find(|acts| match &acts.name {
            Some(name) => own(acts).as_str() != name,
            // The shell has the same environment as this hook.
            None => !is_named,
        });
        let words = another.map(|acts| words::hook_other_name(&acts.command, own(acts)));
        Ok(words.map(|words| self.host.block(&words, Some(call))))
    }

    /// The answer to an unknown tool that names a file which the turn knows and which is stale.
    pub(super) fn suspected(&self, planned: PlannedCall<'_>) -> Result<Option<Value>, CliError> {
        let (mut stale, mut added) = (Vec::new(), BTreeSet::new());
        for path in &planned.plan.suspects {
            // The same file may be named in several spellings.
            if self.is_stale(path, planned.turn)? && added.insert(self.gate.workspace().canonical(path)?) {
                stale.push(Change::of_some_part(path.clone()));
            }
        }
        self.refused(planned, stale, "")
    }

    /// The answer to a command that may change every file that it names, and names one that is stale. It may also only read the
    /// others, so they are not reserved: what somebody else saves there in the meantime would count as the agent's.
    pub(super) fn vague(&self, planned: PlannedCall<'_>) -> Result<Option<Value>, CliError> {
        let PlannedCall { call, plan, turn } = planned;
        let ToolEffects::Shell { commands, .. } = &call.effects else { return Ok(None) };
        let mut stale = Vec::new();
        if plan.vague {
            for path in turn.files_where(|path| self.is_named(commands, &plan.patterns, path))? {
                if self.is_stale(path.as_path(), turn)? {
                    stale.push(Change::of_some_part(path.as_path().to_owned()));
                }
            }
        }
        self.refused(planned, stale, words::HOOK_VAGUE)
    }

    /// The answer of a workspace further up, which only watches these changes.
    pub(in crate::hook) fn watched(&self, call: &Call, paths: &[PathBuf]) -> Result<Option<Value>, CliError> {
        let turn = match self.session.any_turn()? {
            Some(turn) => turn,
            None if !self.protects(paths)? => return Ok(None),
            None => self.session.turn(self.gate, None)?,
        };
        let mut changes: Vec<Change> = Vec::new();
        for path in paths {
            if self.gate.workspace().canonical(path).is_err() {
                continue;
            }
            if self.gate.workspace().is_protected(path)? || self.is_stale(path, &turn)? {
                changes.push(Change::of_some_part(path.clone()));
            }
        }
        self.refused(PlannedCall { call, plan: &ToolPlan::default(), turn: &turn }, changes, "")
    }

    fn protects(&self, paths: &[PathBuf]) -> Result<bool, Fault> {
        for path in paths {
            if self.gate.workspace().is_protected(path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The file to which a path leads, and what the turn knows of it. What is not a path names no file.
    fn known(&self, path: &Path, turn: &SharedTurn) -> Result<Option<(FilePath, Sighting)>, Fault> {
        match self.gate.workspace().canonical(path) {
            Ok(_) => self.gate.sighting(turn, path),
            Err(_) => Ok(None),
        }
    }

    /// Whether the turn knows a file that is not as the agent last saw it.
    fn is_stale(&self, path: &Path, turn: &SharedTurn) -> Result<bool, Fault> {
        let Some((path, sighting)) = self.known(path, turn)? else { return Ok(false) };
        let now = hash_of(path.as_path()).ok();
        Ok(match sighting.baseline(Extent::Part) {
            FileState::Present(known) => now != Some(known),
            FileState::Absent => path.as_path().exists(),
            FileState::Unreadable => false,
        })
    }

    /// Whether a command names a file, in whatever language its parts are written, or by one of these patterns.
    fn is_named(&self, commands: &[String], patterns: &[String], path: &Path) -> bool {
        let root = self.gate.workspace().path();
        let spellings =
            [Some(path), path.strip_prefix(root).ok(), path.strip_prefix(&self.heard.folder).ok()];
        let names = |text: &str| {
            spellings.iter().flatten().filter_map(|path| path.to_str()).any(|word| has_word(text, word))
                || path.file_name().and_then(|name| name.to_str()).is_some_and(|name| has_word(text, name))
        };
        let matches = |pattern: &String| {
            let name = path.file_name().filter(|_| !pattern.contains('/')).map(Path::new);
            let texts = spellings.iter().flatten().copied().chain(name).filter_map(Path::to_str);
            let pattern = NamePattern::new(pattern.trim_start_matches("./"));
            texts.into_iter().any(|text| pattern.matches(text))
        };
        commands.iter().any(|text| names(text)) || patterns.iter().any(matches)
    }
}
