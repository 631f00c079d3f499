//! Who may do what: the filter before a claim. Pure.
//!
//! Invariant: a sensitive action is drafted, never executed, by the agent it is sensitive for; from `Approved` it is
//! executed only by an agent that is allowed. So nothing that nobody approved is executed by that agent.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::claim::Mode;
use super::state::State;
use crate::name::Agent;

/// `[agent.X]`: what one agent may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Role {
    /// What people call it.
    pub role: Option<String>,
    /// Actions that it executes.
    pub allowed: Vec<String>,
    /// Actions that it drafts, for a person to approve.
    pub sensitive: Vec<String>,
}

/// All `[agent.X]` of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles(pub BTreeMap<Agent, Role>);

impl Roles {
    /// The agent has a table of its own. One without may do everything.
    pub fn knows(&self, agent: &Agent) -> bool {
        self.0.contains_key(agent)
    }

    /// Whether some agent may only draft this: then an execution that was cut short is a person's business.
    pub fn is_sensitive(&self, action: Option<&str>) -> bool {
        let Some(action) = action else { return false };
        self.0.values().any(|role| has(&role.sensitive, action))
    }

    /// In which mode the agent may take a task with this action from this state, or in a sentence why it may not.
    pub fn mode(&self, agent: &Agent, action: Option<&str>, state: State) -> Result<Mode, String> {
        let (Some(action), Some(role)) = (action, self.0.get(agent)) else { return Ok(Mode::Execute) };
        let allowed = has(&role.allowed, action);
        if state == State::Approved {
            return if allowed {
                Ok(Mode::Execute)
            } else {
                Err(format!("`{action}` is approved, but `{agent}` is not allowed to execute it"))
            };
        }
        if has(&role.sensitive, action) {
            return Ok(Mode::Draft);
        }
        if allowed {
            return Ok(Mode::Execute);
        }
        let may = |role: &Role| has(&role.allowed, action) || has(&role.sensitive, action);
        let who = self.0.iter().filter(|(_, role)| may(role)).map(|(name, _)| format!("`{name}`"));
        let who: Vec<_> = who.collect();
        let others =
            if who.is_empty() { "no agent may".to_owned() } else { format!("{} may", who.join(", ")) };
        Err(format!("`{action}` is not among the actions of `{agent}`; {others}"))
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
        assert_eq!(why, "`other` is not among the actions of `cloud`; no agent may");
    }
}
