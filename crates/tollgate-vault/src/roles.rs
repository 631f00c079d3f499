//! Who may do what: the filter before a claim. Pure.
//!
//! Invariant: the agent for which an action is sensitive drafts it and never executes it. From `Approved`, only an agent
//! that is allowed executes it. So that agent executes nothing that nobody approved.

use std::collections::BTreeMap;
use std::fmt;

use crate::claim::Mode;
use crate::state::State;
use tollgate_base::name::Agent;
pub use tollgate_base::settings::{Agents, Role};

/// All `[agent.X]` of a configuration, and what agents without one may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// The tables.
    pub tables: BTreeMap<Agent, Role>,
    /// Which agents may claim tasks.
    pub agents: Agents,
}

impl Roles {
    /// These tables; agents without one may do everything.
    pub fn of(tables: BTreeMap<Agent, Role>) -> Self {
        Self { tables, agents: Agents::All }
    }

    /// Whether the agent has a table of its own.
    pub fn knows(&self, agent: &Agent) -> bool {
        self.tables.contains_key(agent)
    }

    /// Whether some agent with a table may claim a task with this action from this state. Without tables all agents may, unless
    /// only listed ones may.
    pub fn somebody_may(&self, action: Option<&str>, state: State) -> bool {
        match action {
            _ if self.tables.is_empty() => self.agents == Agents::All,
            None => true,
            Some(action) => self.tables.values().any(|role| may(role, action, state).is_some()),
        }
    }

    /// Whether some agent may only draft this. Then a person decides what happens after an interrupted execution.
    pub fn is_sensitive(&self, action: Option<&str>) -> bool {
        let Some(action) = action else { return false };
        self.tables.values().any(|role| has(&role.sensitive, action))
    }

    /// In which mode the agent may claim a task with this action from this state.
    pub fn mode(&self, agent: &Agent, action: Option<&str>, state: State) -> Result<Mode, NotAllowed> {
        let Some(role) = self.tables.get(agent) else {
            return match self.agents {
                Agents::All => Ok(Mode::Execute),
                Agents::Listed => Err(NotAllowed::Unlisted(agent.clone())),
            };
        };
        let Some(action) = action else { return Ok(Mode::Execute) };
        if let Some(mode) = may(role, action, state) {
            return Ok(mode);
        }
        let others = self.tables.iter().filter(|(_, role)| may(role, action, state).is_some());
        let others = others.map(|(name, _)| name.clone()).collect();
        let is_approved = state == State::Approved;
        Err(NotAllowed::Action { agent: agent.clone(), action: action.to_owned(), is_approved, others })
    }
}

/// In which mode this role may claim a task with this action from this state.
fn may(role: &Role, action: &str, state: State) -> Option<Mode> {
    if state != State::Approved && has(&role.sensitive, action) {
        return Some(Mode::Draft);
    }
    has(&role.allowed, action).then_some(Mode::Execute)
}

/// Why the configuration does not allow an agent to do a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAllowed {
    /// Only agents with a table may claim tasks, and this one has none.
    Unlisted(Agent),
    /// The agent's table does not allow the action.
    Action {
        /// The agent.
        agent: Agent,
        /// The action.
        action: String,
        /// Whether a person has approved the task, so that only an agent that may execute it can claim it.
        is_approved: bool,
        /// The agents that may.
        others: Vec<Agent>,
    },
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (agent, action, is_approved, others) = match self {
            Self::Unlisted(agent) => {
                return write!(
                    f,
                    "the configuration has no `[agent.{agent}]`, and only listed agents may claim tasks \
                     (`[vault] agents = \"listed\"`)"
                );
            }
            Self::Action { agent, action, is_approved, others } => (agent, action, is_approved, others),
        };
        let names: Vec<_> = others.iter().map(|name| format!("`{name}`")).collect();
        let others =
            if names.is_empty() { "no agent in the configuration".to_owned() } else { names.join(", ") };
        if *is_approved {
            write!(f, "`{action}` is approved, but `{agent}` is not allowed to execute it; {others} may")
        } else {
            write!(f, "`{agent}` may not perform `{action}`; {others} may")
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
        let roles = Roles::of(
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
        assert_eq!(why.to_string(), "`cloud` may not perform `other`; no agent in the configuration may");
        assert!(!roles.somebody_may(Some("other"), new) && roles.somebody_may(Some("pay"), yes));
        assert!(roles.somebody_may(None, new) && Roles::default().somebody_may(Some("other"), new));
    }

    #[test]
    fn if_only_listed_agents_may_the_others_may_do_nothing() {
        let tables = BTreeMap::from([("cloud".parse().unwrap(), Role::default())]);
        let roles = Roles { agents: Agents::Listed, ..Roles::of(tables) };
        for action in [None, Some("pay")] {
            let why = roles.mode(&"stranger".parse().unwrap(), action, State::NeedsAction).unwrap_err();
            assert!(why.to_string().contains("no `[agent.stranger]`"), "{why}");
        }
        assert_eq!(roles.mode(&"cloud".parse().unwrap(), None, State::NeedsAction), Ok(Mode::Execute));
        let nobody = Roles { agents: Agents::Listed, ..Roles::default() };
        assert!(!nobody.somebody_may(None, State::NeedsAction));
    }
}
