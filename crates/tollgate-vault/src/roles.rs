//! Who may do what: the filter before a claim. Pure.
//!
//! Invariant: the agent for which an action is sensitive drafts it and never executes it. From `Approved`, only an agent
//! that is allowed executes it. So that agent executes nothing that nobody approved.

use std::collections::BTreeMap;
use std::fmt;

use crate::claim::Mode;
use crate::state::State;
use tollgate_base::name::Agent;
pub use tollgate_base::settings::Role;

/// All `[agent.X]` of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles(pub BTreeMap<Agent, Role>);

impl Roles {
    /// Whether the agent has a table of its own. One without may do everything.
    pub fn knows(&self, agent: &Agent) -> bool {
        self.0.contains_key(agent)
    }

    /// Whether some agent may only draft this. Then a person decides what happens after an interrupted execution.
    pub fn is_sensitive(&self, action: Option<&str>) -> bool {
        let Some(action) = action else { return false };
        self.0.values().any(|role| has(&role.sensitive, action))
    }

    /// In which mode the agent may claim a task with this action from this state.
    pub fn mode(&self, agent: &Agent, action: Option<&str>, state: State) -> Result<Mode, NotAllowed> {
        let (Some(action), Some(role)) = (action, self.0.get(agent)) else { return Ok(Mode::Execute) };
        let is_approved = state == State::Approved;
        let drafts = |role: &Role| !is_approved && has(&role.sensitive, action);
        let executes = |role: &Role| has(&role.allowed, action);
        if drafts(role) {
            return Ok(Mode::Draft);
        }
        if executes(role) {
            return Ok(Mode::Execute);
        }
        let others = self.0.iter().filter(|(_, role)| drafts(role) || executes(role));
        let others = others.map(|(name, _)| name.clone()).collect();
        Err(NotAllowed { agent: agent.clone(), action: action.to_owned(), is_approved, others })
    }
}

/// The agent's role does not allow an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAllowed {
    /// The agent.
    pub agent: Agent,
    /// The action.
    pub action: String,
    /// Whether a person has approved the task, so that only an agent that may execute it can claim it.
    pub is_approved: bool,
    /// The agents that may.
    pub others: Vec<Agent>,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, action, is_approved, others } = self;
        let names: Vec<_> = others.iter().map(|name| format!("`{name}`")).collect();
        let others = if names.is_empty() { "no agent".to_owned() } else { names.join(", ") };
        if *is_approved {
            write!(f, "`{action}` is approved, but `{agent}` is not allowed to execute it; {others} may")
        } else {
            write!(f, "`{action}` is not among the actions of `{agent}`; {others} may")
        }
    }
}

fn has(list: &[String], action: &str) -> bool {
    list.iter().any(|known| known == action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let role = |allowed: &[&str], sensitive: &[&str]| Role {
            role: None,
            allowed: allowed.iter().map(|a| (*a).to_owned()).collect(),
            sensitive: sensitive.iter().map(|a| (*a).to_owned()).collect(),
        };
        let roles = Roles(
            [
                ("cloud", role(&["triage"], &["pay"])),
                ("local", role(&["triage", "pay"], &[])),
                ("both", role(&["pay"], &["pay"])),
            ]
            .into_iter()
            .map(|(name, role)| (name.parse().unwrap(), role))
            .collect(),
        );
        let mode = |agent: &str, action, state| roles.mode(&agent.parse().unwrap(), action, state).ok();
        let (new, yes) = (State::NeedsAction, State::Approved);
        for (agent, action, from_new, from_approved) in [
            ("cloud", Some("triage"), Some(Mode::Execute), Some(Mode::Execute)),
            ("cloud", Some("pay"), Some(Mode::Draft), None),
            ("cloud", Some("other"), None, None),
            ("cloud", None, Some(Mode::Execute), Some(Mode::Execute)),
            ("local", Some("pay"), Some(Mode::Execute), Some(Mode::Execute)),
            ("both", Some("pay"), Some(Mode::Draft), Some(Mode::Execute)),
            ("stranger", Some("pay"), Some(Mode::Execute), Some(Mode::Execute)),
        ] {
            assert_eq!(mode(agent, action, new), from_new, "{agent} {action:?}");
            assert_eq!(mode(agent, action, yes), from_approved, "{agent} {action:?} approved");
        }
        assert!(
            roles.is_sensitive(Some("pay"))
                && !roles.is_sensitive(Some("triage"))
                && !roles.is_sensitive(None)
        );
        let why = roles.mode(&"cloud".parse().unwrap(), Some("other"), new).unwrap_err();
        assert_eq!(why.to_string(), "`other` is not among the actions of `cloud`; no agent may");
    }
}
