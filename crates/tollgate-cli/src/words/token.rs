//! The tokens of agents and monitoring programs.

use tollgate::name::Agent;
use tollgate_server::tokens::{Token, TokenScope};

use super::text::moment;

fn opens(opens: TokenScope) -> &'static str {
    match opens {
        TokenScope::Mcp => "`/mcp`",
        TokenScope::Figures => "`/health` and `/metrics`",
    }
}

/// Notes beside a new token, which stands alone on stdout.
pub(crate) fn token_added(name: &Agent, what: TokenScope) -> String {
    format!(
        "added a token for `{name}`, which opens {} of `tollgate serve`\n\
         next: keep it, because it is shown only now; send it as `Authorization: Bearer TOKEN`",
        opens(what)
    )
}

pub(crate) fn tokens(tokens: &[Token]) -> String {
    if tokens.is_empty() {
        return "no tokens".into();
    }
    let line = |token: &Token| {
        format!("{}  added {}, opens {}", token.name, moment(token.added), opens(token.opens))
    };
    tokens.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn token_removed(name: &Agent) -> String {
    format!("removed the token of `{name}`; a running server no longer accepts it")
}
