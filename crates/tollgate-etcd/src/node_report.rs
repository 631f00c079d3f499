//! What each node says about itself, for a checkup.

use std::time::Instant;

use jiff::Timestamp;

use crate::client::{Client, PER_NODE, RequestLimits};
use crate::message::StatusAnswer;
use crate::node_failure::NodeResult;
use crate::version::{needs_others, risk_with_login, wrong_version};

/// What a node says about itself.
pub(crate) struct NodeReport {
    pub(crate) version: String,
    /// Why its version cannot be used.
    pub(crate) wrong_version: Option<String>,
    /// What can happen with its version because we have a login.
    pub(crate) login_risk: Option<String>,
    pub(crate) status: StatusAnswer,
    /// Its clock, as in HTTP.
    pub(crate) date: Option<String>,
    /// Ours at that moment.
    pub(crate) asked: Timestamp,
}

/// The address of each node, and what it says.
pub(crate) fn each_node(client: &Client) -> Vec<(String, NodeResult<NodeReport>)> {
    let numbered = client.addresses().enumerate();
    numbered.map(|(number, address)| (address.to_owned(), look(client, number))).collect()
}

fn look(client: &Client, number: usize) -> NodeResult<NodeReport> {
    let (version, date) = client.version(number, PER_NODE)?;
    let asked = Timestamp::now();
    let soon = || Instant::now() + PER_NODE;
    let token = client.token(number, soon())?;
    let is_alone = needs_others(&version) && client.members(number, soon())? == 1;
    let limits = RequestLimits::all(PER_NODE);
    let status = client.ask(number, "/v3/maintenance/status", b"{}", token.as_deref(), limits)?;
    Ok(NodeReport {
        wrong_version: wrong_version(&version, is_alone),
        login_risk: client.login.as_ref().and_then(|_| risk_with_login(&version)),
        version,
        status,
        date,
        asked,
    })
}
