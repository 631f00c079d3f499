//! Which workspaces judge a tool call: those that its files are in, wherever the agent is at the moment.
//!
//! The nearest workspace above a file knows the file: it records reads, reserves the file and judges its changes. If the
//! root of the agent's git checkout is nearer, it is the workspace. Workspaces further up only watch: they refuse a change of
//! what they protect, or of what their turn knows to be stale. So neither a new `.tollgate` folder nor a new checkout takes a
//! file out of the workspace in which an agent has read it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tollgate::workspace::{canonical, has_state};

use super::plan::ToolPlan;
use crate::invocation::Invocation;

/// The parts of a plan, outer workspaces first.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// What each workspace judges.
    pub(super) own: BTreeMap<PathBuf, ToolPlan>,
    /// The changes that each workspace watches.
    pub(super) watched: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl Shares {
    /// Divides a plan. `home` is the workspace of the agent's folder: it judges files that are in no workspace. The workspace in
    /// which a command runs always has a share. States of other users are ignored.
    pub(super) fn of(
        plan: ToolPlan,
        (home, home_has_state): (&Path, bool),
        runs_at: Option<&Path>,
        invocation: &Invocation,
    ) -> Self {
        let mut shares = Self::default();
        let ToolPlan {
            reads, changes, touched, suspects, shell, vague, patterns, unreadable, acts_as, ..
        } = plan;
        let workspaces = |path: &Path| workspaces_of(path, home, invocation);
        for (path, extent) in reads {
            shares.nearest(&workspaces(&path), home).reads.push((path, extent));
        }
        for planned in changes {
            shares.watched(&planned.path, &workspaces(&planned.path), home).changes.push(planned);
        }
        for path in touched {
            shares.watched(&path, &workspaces(&path), home).touched.push(path);
        }
        for path in suspects {
            shares.watched(&path, &workspaces(&path), home).suspects.push(path);
        }
        if let Some(root) = runs_at {
            shares.own.entry(root.to_owned()).or_default();
        }
        let runs_outside_home = runs_at.is_some_and(|root| root != home);
        if home_has_state || shares.own.is_empty() || runs_outside_home {
            shares.own.entry(home.to_owned()).or_default();
        }
        for (root, plan) in &mut shares.own {
            (plan.shell, plan.vague) = (shell, vague);
            plan.patterns.clone_from(&patterns);
            plan.unreadable = unreadable && (root == home || !home_has_state);
        }
        // In another workspace the agent may have another name.
        let judge = if shares.own.contains_key(home) {
            Some(home.to_owned())
        } else {
            shares.own.keys().next().cloned()
        };
        if let Some(plan) = judge.and_then(|judge| shares.own.get_mut(&judge)) {
            plan.acts_as = acts_as;
        }
        shares
    }

    /// The share of the nearest of these workspaces.
    fn nearest(&mut self, workspaces: &[PathBuf], home: &Path) -> &mut ToolPlan {
        self.own.entry(workspaces.first().map_or(home, PathBuf::as_path).to_owned()).or_default()
    }

    /// The share of the nearest of these workspaces, for a change of this path. The other workspaces watch the change.
    fn watched(&mut self, path: &Path, workspaces: &[PathBuf], home: &Path) -> &mut ToolPlan {
        for root in workspaces.iter().skip(1) {
            self.watched.entry(root.clone()).or_default().push(path.to_owned());
        }
        self.nearest(workspaces, home)
    }
}

/// The workspace in whose view a command of an agent in `home` runs: of those from `home` upwards that run commands, the outermost that the
/// agent has used in this turn, because the command may change its files, too; otherwise the nearest. A checkout without a
/// configuration of its own runs no commands, so the workspace around it does.
pub(super) fn run_root(
    home: &Path,
    invocation: &Invocation,
    runs: impl Fn(&Path) -> bool,
    used: impl FnOnce() -> Vec<PathBuf>,
) -> Option<PathBuf> {
    let running: Vec<PathBuf> =
        workspaces_of(home, home, invocation).into_iter().filter(|root| runs(root)).collect();
    let used = if running.len() > 1 { used() } else { Vec::new() };
    let outermost = running.iter().rev().find(|root| used.contains(root));
    outermost.or(running.first()).cloned()
}

/// The workspaces above this path, the nearest first.
fn workspaces_of(path: &Path, home: &Path, invocation: &Invocation) -> Vec<PathBuf> {
    match canonical(path) {
        Ok(path) => {
            let is_workspace =
                |folder: &&Path| *folder == home || has_state(folder) && invocation.accepts(folder);
            path.ancestors().filter(is_workspace).map(Path::to_owned).collect()
        }
        // The workspace that judges it reports the fault.
        Err(_) => Vec::new(),
    }
}
