//! Who acts in this call: an agent, under a claim, or a person.

use tollgate::name::Agent;
use tollgate::turn::TurnState;
use tollgate::vault::claim::ClaimId;

use super::{Invocation, from_environment};
use crate::error::CliError;
use crate::host;
use crate::surroundings::Surroundings;

impl Invocation {
    /// The agent given by an argument.
    pub(crate) fn named_agent(&self) -> Option<&Agent> {
        self.global.agent.as_ref()
    }

    /// The agent given by an argument or by the environment.
    pub(crate) fn named_by_environment(&self) -> Result<Option<Agent>, CliError> {
        match (&self.global.agent, &self.surroundings.agent) {
            (Some(agent), _) => Ok(Some(agent.clone())),
            (None, Some(agent)) => from_environment("TOLLGATE_AGENT", agent).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Whether `TOLLGATE_AGENT` names an agent. Programs that this one starts inherit that, unlike an argument.
    pub(crate) fn is_named_by_variable(&self) -> bool {
        self.surroundings.agent.is_some()
    }

    /// The acting agent: given, else the user.
    pub(crate) fn agent(&self) -> Result<Agent, CliError> {
        if let Some(agent) = &self.global.agent {
            return Ok(agent.clone());
        }
        if let Some(agent) = &self.surroundings.agent {
            return from_environment("TOLLGATE_AGENT", agent);
        }
        Ok(self.person().parse()?)
    }

    /// The agent that acts, unless it is the user: by its name, by the run for which this is, or by its turn.
    pub(crate) fn acting_agent(&self) -> Result<Option<Agent>, CliError> {
        if let Some(agent) = self.named_by_environment()?.or(self.carried_for()?) {
            return Ok(Some(agent));
        }
        match self.turn_id()? {
            Some(_) => {
                let agent = self.shared_turn()?.1.agent().clone();
                Ok(Some(agent).filter(|agent| agent.as_str() != self.person()))
            }
            None => Ok(None),
        }
    }

    /// This call without the agent and the turn that its arguments name, where they say what is asked for and not who asks. The shell of
    /// an agent program has no other name than that in the arguments.
    pub(crate) fn unnamed(&self) -> Self {
        let mut global = self.global.clone();
        global.turn = None;
        if self.inside_an_agent().is_none() || self.is_named_by_variable() {
            global.agent = None;
        }
        Self::new(Surroundings::look(), global)
    }

    /// The agent that runs this process, if one does. Then what only people may do is refused.
    pub(crate) fn inside_an_agent(&self) -> Option<String> {
        let given = self.surroundings.agent.as_ref().map(|agent| agent.to_string_lossy().into_owned());
        given.or_else(|| host::around(Surroundings::has).map(str::to_owned))
    }

    /// The agent that writes files: the owner of the given turn, else the acting agent.
    pub(crate) fn writer(&self) -> Option<Agent> {
        match self.turn_id() {
            Ok(Some(_)) => self.shared_turn().ok().map(|(_, turn)| turn.agent().clone()),
            _ => self.agent().ok(),
        }
    }

    /// The claim given by an argument or by the environment.
    pub(crate) fn claim_id(&self, named: Option<&ClaimId>) -> Result<ClaimId, CliError> {
        match named {
            Some(id) => Ok(id.clone()),
            None => self.given_claim()?.ok_or_else(|| {
                CliError::usage(
                    "no claim ID given",
                    "give `--claim-id ID`, as `task claim` printed it, or set `TOLLGATE_CLAIM_ID`",
                )
            }),
        }
    }

    /// The person's secret for a server, from the environment.
    pub(crate) fn token(&self) -> Result<Option<String>, CliError> {
        match &self.surroundings.token {
            Some(token) => match token.to_str() {
                Some(token) => Ok(Some(token.to_owned())),
                None => Err(CliError::usage(
                    "`TOLLGATE_TOKEN` is not UTF-8",
                    "use letters and digits, for example the output of `openssl rand -hex 16`",
                )),
            },
            None => Ok(None),
        }
    }

    /// The user's name, even if an agent is given.
    pub(crate) fn person(&self) -> String {
        let user = self.surroundings.user.as_deref().and_then(sanitised);
        user.map_or_else(
            || format!("uid-{}", rustix::process::getuid().as_raw()),
            |user| user.as_str().to_owned(),
        )
    }

    /// The claim given by the environment: the one under which this process was started.
    pub(crate) fn given_claim(&self) -> Result<Option<ClaimId>, CliError> {
        let given = self.surroundings.claim_id.as_ref();
        given.map(|id| from_environment("TOLLGATE_CLAIM_ID", id)).transpose()
    }
}

/// A user's name as the name of an agent; `None` if no valid character is left.
fn sanitised(user: &str) -> Option<Agent> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.@+".contains(c) { c } else { '-' };
    let name: String = user.chars().map(plain).collect();
    // The longest valid name. All characters are ASCII here.
    name.trim_matches(['.', '-']).chars().take(64).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_name_becomes_a_valid_agent_or_none() {
        let name = |user: &str| sanitised(user).map(|agent| agent.as_str().to_owned());
        assert_eq!(name("ada").as_deref(), Some("ada"));
        assert_eq!(name("DOMAIN\\ada lovelace").as_deref(), Some("DOMAIN-ada-lovelace"));
        assert_eq!(name("..ada\x1b[").as_deref(), Some("ada"));
        assert_eq!(name(&"x".repeat(100)), Some("x".repeat(64)));
        assert_eq!(name("--"), None);
        assert_eq!(name("日本"), None);
    }
}
