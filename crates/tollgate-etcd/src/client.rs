//! Talking to the nodes of an etcd over HTTP: failover, TLS, a login, and a deadline for every call.
//!
//! Invariants: every call ends by its deadline. A call goes to another node if one does not answer, so it may be carried out
//! twice: only calls for which that is harmless are made (a step has an id; a lease has one, too). A node with a version that
//! loses data is not used.

use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tollgate_base::error::{Fault, Result};
use ureq::unversioned::transport::DefaultConnector;

use crate::addresses::NodeAddresses;
use crate::call_error::{CallError, CallResult};
use crate::message::{
    LeaseAnswer, MembersAnswer, Range, RangeAnswer, StreamMessage, TokenAnswer, Txn, TxnAnswer,
    VersionAnswer, encoded,
};
use crate::node_failure::{NodeFailure, NodeResult, code, lost, may_pass, said, unsent};
use crate::tls::{Login, tls};
use crate::url::EtcdUrl;
use crate::version::{needs_others, wrong_version};

/// How long one node may take before another is asked. Longer than an election, so that a healthy node has time to wait for
/// the new leader, and short enough that a node that hangs costs little.
pub(crate) const PER_NODE: Duration = Duration::from_millis(1500);

/// The pause after no node has answered.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the next calls are short after a call that nobody answered.
const SILENCE: Duration = Duration::from_secs(5);

/// How long a watch lasts before it is made again, elsewhere if need be: a node that was cut off from the others says nothing.
pub(crate) const WATCH: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// The longest answer that is read. The longest that tollgate asks for is a page of 250 tasks with 1.25 MiB each, and base64 makes
/// that 417 MiB. A page of the ledger has more lines, but usually half a kilobyte in each.
pub(crate) const MAX_ANSWER: u64 = 512 << 20;

/// What to do if the database of etcd has reached its quota.
const MAKE_ROOM: &str =
    "compact and defragment it, or raise `--quota-backend-bytes`; then run `etcdctl alarm disarm`";

/// Lists the members of the cluster.
pub(crate) const MEMBERS: &str = "/v3/cluster/member/list";

struct Node {
    /// With its scheme, for requests.
    base: String,
    /// Whether its version was found to be a good one.
    checked: AtomicBool,
}

/// The nodes of an etcd.
pub(crate) struct Client {
    agent: ureq::Agent,
    nodes: Vec<Node>,
    /// The node that answered last.
    current: AtomicUsize,
    pub(crate) login: Option<Login>,
    token: Mutex<Option<String>>,
    /// Whether the password of the login crosses a network without encryption.
    pub(crate) tells_password: bool,
    /// The address, for messages.
    pub(crate) shown: String,
    /// How long a call may take with all its tries.
    pub(crate) deadline: Duration,
    /// When a call last got no answer from any node, if none has answered since.
    silent: Mutex<Option<Instant>>,
}

impl Client {
    /// Connects to nothing yet. Relative paths of TLS files begin at `base`.
    pub(crate) fn new(url: &EtcdUrl, login: Option<Login>, deadline: Duration, base: &Path) -> Result<Self> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .user_agent("tollgate")
            .timeout_resolve(Some(PER_NODE))
            .timeout_connect(Some(PER_NODE));
        if let Some(files) = &url.tls {
            config = config.tls_config(tls(files, base)?);
        }
        let scheme = if url.tls.is_some() { "https" } else { "http" };
        let node =
            |node: &String| Node { base: format!("{scheme}://{node}"), checked: AtomicBool::new(false) };
        Ok(Self {
            agent: ureq::Agent::with_parts(
                config.build(),
                DefaultConnector::default(),
                NodeAddresses::default(),
            ),
            nodes: url.nodes.iter().map(node).collect(),
            // Not every process begins with the same node.
            current: AtomicUsize::new(std::process::id() as usize % url.nodes.len()),
            tells_password: login.is_some() && url.is_unencrypted(),
            login,
            token: Mutex::new(None),
            shown: url.shown.clone(),
            deadline,
            silent: Mutex::new(None),
        })
    }

    /// A transaction.
    pub(crate) fn txn(&self, txn: &Txn) -> CallResult<TxnAnswer> {
        self.call("/v3/kv/txn", txn, self.deadline)
    }

    /// Looks at many keys, in one answer.
    pub(crate) fn range(&self, range: &Range) -> CallResult<RangeAnswer> {
        self.range_within(range, self.deadline)
    }

    /// Looks at many keys, in one answer, before this deadline.
    pub(crate) fn range_within(&self, range: &Range, deadline: Duration) -> CallResult<RangeAnswer> {
        // Before a node begins to answer, it looks at all keys and sorts them.
        let begin = if range.created_since.is_some() { PER_NODE.max(deadline / 2) } else { PER_NODE };
        self.call_within("/v3/kv/range", &range.body(), deadline, begin)
    }

    /// Makes a lease with this id, unless it exists.
    pub(crate) fn grant(&self, lease: i64, ttl: Duration) -> CallResult<()> {
        // Whole seconds, and never fewer than asked for: the owner counts on all of them.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let body = json!({ "ID": lease.to_string(), "TTL": seconds.max(1).to_string() });
        match self.call::<LeaseAnswer>("/v3/lease/grant", &body, self.deadline) {
            // Perhaps by a try whose answer was lost.
            Err(
                CallError::Refused { message, .. }
                | CallError::Unanswered(Fault::Unreachable { what: message, .. }),
            ) if message.contains("lease already exists") => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Keeps a lease alive for its whole time. If it was alive: the term of the leader, as the node knew it before.
    pub(crate) fn keep_alive(&self, lease: i64, deadline: Duration) -> CallResult<Option<i64>> {
        let body = json!({ "ID": lease.to_string() });
        let StreamMessage { result: answer }: StreamMessage<LeaseAnswer> =
            self.call("/v3/lease/keepalive", &body, deadline)?;
        Ok((answer.ttl > 0).then_some(answer.header.raft_term))
    }

    /// How much of a lease is left; nothing if it has ended. In whole seconds.
    pub(crate) fn time_left(&self, lease: i64) -> CallResult<Duration> {
        let body = json!({ "ID": lease.to_string() });
        let answer: LeaseAnswer = self.call("/v3/lease/timetolive", &body, self.deadline)?;
        Ok(Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0)))
    }

    /// One call, with all nodes in turn until one answers or the time is over.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> CallResult<T> {
        self.call_within(path, body, deadline, PER_NODE)
    }

    /// Calls the nodes until one answers. Each must begin to answer within the time `begin`.
    fn call_within<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        deadline: Duration,
        begin: Duration,
    ) -> CallResult<T> {
        let body = serde_json::to_vec(body)
            .map_err(|error| CallError::Refused { code: 0, message: error.to_string() })?;
        // Right after a call in vain, the next ones wait only for a moment: a command that makes several calls must not wait
        // for each of them.
        let silent = *self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = silent.is_some_and(|since| since.elapsed() < SILENCE);
        let over = Instant::now() + if is_silent { deadline.min(PER_NODE) } else { deadline };
        let (mut tried, mut was_sent, mut logins, mut reason) = (0, false, 0, String::new());
        loop {
            let number = self.current();
            let failed = match self.try_call(number, path, &body, begin, over) {
                Ok(answer) => {
                    *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    return Ok(answer);
                }
                // The token is too old, or the rights of its user have changed.
                Err(NodeFailure::Said { code, message })
                    if (code == code::UNAUTHENTICATED
                        || code == code::INVALID_ARGUMENT && message.contains("auth store is old"))
                        && self.login.is_some()
                        && logins < 2 =>
                {
                    logins += 1;
                    *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    continue;
                }
                Err(failed) => failed,
            };
            let why = match failed {
                NodeFailure::Said { code, message } if may_pass(code, &message) => {
                    was_sent = true;
                    message
                }
                // A transaction that reaches the quota while it is carried out gets this answer, too.
                NodeFailure::Said { code: code::EXHAUSTED, message }
                    if message.contains("space exceeded") =>
                {
                    let what = format!("{message}: {MAKE_ROOM}");
                    let fault = Fault::Unreachable { remote: self.shown.clone(), what };
                    return Err(CallError::Unanswered(fault));
                }
                // An earlier try may have been carried out, so this refusal does not say that nothing was changed.
                NodeFailure::Said { message, .. } if was_sent => {
                    let fault = Fault::Unreachable { remote: self.shown.clone(), what: message };
                    return Err(CallError::Unanswered(fault));
                }
                NodeFailure::Said { code, message } => return Err(CallError::Refused { code, message }),
                NodeFailure::Lost(why) => {
                    was_sent = true;
                    why
                }
                NodeFailure::Unsent(why) => why,
            };
            // A try that had no time left says less than the one before it.
            if tried == 0 || Instant::now() < over {
                reason = why;
            }
            self.skip(number);
            tried += 1;
            if Instant::now() + PAUSE >= over {
                *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                let fault = Fault::Unreachable { remote: self.shown.clone(), what: reason };
                return Err(if was_sent { CallError::Unanswered(fault) } else { CallError::Unsent(fault) });
            }
            if tried % self.nodes.len() == 0 {
                sleep(PAUSE);
            }
        }
    }

    /// One try, which is over when the call is. The node must begin to answer in time; a large answer may take longer.
    fn try_call<T: DeserializeOwned>(
        &self,
        number: usize,
        path: &str,
        body: &[u8],
        begin: Duration,
        over: Instant,
    ) -> NodeResult<T> {
        self.check_version(number, over)?;
        let token = self.token(number, over)?;
        let left = left_until(over)?;
        let limits = RequestLimits { answer: left, whole: Some(left), begin: left.min(begin) };
        self.ask(number, path, body, token.as_deref(), limits)
    }

    /// One request, and the whole answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        number: usize,
        path: &str,
        body: &[u8],
        token: Option<&str>,
        limits: RequestLimits,
    ) -> NodeResult<T> {
        let mut answer = self.post(number, path, body, token, limits)?;
        let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let text = text.map_err(|error| NodeFailure::Lost(error.to_string()))?;
        match answer.status().is_success() {
            true => understood(&text),
            false => Err(said(answer.status().as_u16(), &text)),
        }
    }

    fn post(
        &self,
        number: usize,
        path: &str,
        body: &[u8],
        token: Option<&str>,
        limits: RequestLimits,
    ) -> NodeResult<ureq::http::Response<ureq::Body>> {
        let mut request = self.agent.post(format!("{}{path}", self.nodes[number].base));
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        // A node without a leader ends a watch instead of saying nothing.
        request = request.header("Grpc-Metadata-hasleader", "true");
        let request = request
            .config()
            .timeout_global(limits.whole)
            .timeout_send_request(Some(limits.begin))
            .timeout_send_body(Some(limits.begin))
            .timeout_recv_response(Some(limits.begin))
            .timeout_recv_body(Some(limits.answer))
            .build();
        request.send(body).map_err(lost)
    }

    /// The token of our login on the nodes; `None` without a login.
    pub(crate) fn token(&self, number: usize, over: Instant) -> NodeResult<Option<String>> {
        let Some(login) = &self.login else { return Ok(None) };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_some() {
            return Ok(known);
        }
        // Nobody holds the token while a node is asked for one, so two threads may both ask. If one waited for the other, its
        // call could end late.
        let body = json!({ "name": login.user, "password": login.password }).to_string();
        let limits = RequestLimits::all(left_until(over)?.min(PER_NODE));
        let answer = self.ask(number, "/v3/auth/authenticate", body.as_bytes(), None, limits);
        // Nothing but the login was sent.
        let TokenAnswer { token } = answer.map_err(|failed| match unsent(failed) {
            NodeFailure::Said { code: code::INVALID_ARGUMENT, message } => {
                NodeFailure::Said { code: code::DENIED, message }
            }
            failed => failed,
        })?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(Some(token))
    }

    /// Refuses versions that are too old, or that lose data.
    fn check_version(&self, number: usize, over: Instant) -> NodeResult<()> {
        let node = &self.nodes[number];
        if node.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (version, _) = self.version(number, left_until(over)?.min(PER_NODE))?;
        let is_alone = needs_others(&version) && self.members(number, over)? == 1;
        if let Some(why) = wrong_version(&version, is_alone) {
            return Err(NodeFailure::Said {
                code: code::PRECONDITION,
                message: format!("{}: {why}", node.base),
            });
        }
        node.checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// How many members the cluster of this node has.
    pub(crate) fn members(&self, number: usize, over: Instant) -> NodeResult<usize> {
        let token = self.token(number, over)?;
        let limits = RequestLimits::all(left_until(over)?.min(PER_NODE));
        let read: MembersAnswer =
            self.ask(number, MEMBERS, b"{}", token.as_deref(), limits).map_err(unsent)?;
        // A learner does not vote, so it does not help.
        Ok(read.members.iter().filter(|member| member["isLearner"] != true).count())
    }

    /// The version and the date of a node. Nothing is changed by asking for them.
    pub(crate) fn version(&self, number: usize, limit: Duration) -> NodeResult<(String, Option<String>)> {
        let request = self.agent.get(format!("{}/version", self.nodes[number].base));
        let failed = |error: ureq::Error| NodeFailure::Unsent(error.to_string());
        let mut answer = request.config().timeout_global(Some(limit)).build().call().map_err(failed)?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
        let text = answer.body_mut().read_to_vec().map_err(failed)?;
        match answer.status().as_u16() {
            200..300 => {
                let VersionAnswer { etcdserver } = understood(&text).map_err(unsent)?;
                Ok((etcdserver, date))
            }
            // It may be better soon, and no call was sent yet.
            status @ 500.. => Err(NodeFailure::Unsent(said(status, &text).text())),
            status => Err(said(status, &text)),
        }
    }

    /// The node that is asked next.
    pub(crate) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed) % self.nodes.len()
    }

    /// Everything that happens to keys with this prefix from a revision on, as lines of JSON, from this node. It ends after a
    /// while.
    pub(crate) fn watch(
        &self,
        number: usize,
        prefix: &str,
        from: i64,
    ) -> CallResult<BufReader<ureq::BodyReader<'static>>> {
        let body = json!({ "create_request": {
            "key": encoded(prefix),
            "range_end": encoded(crate::message::end_of(prefix)),
            "start_revision": from.to_string(),
        } });
        let soon = || Instant::now() + PER_NODE;
        let opened =
            self.check_version(number, soon()).and_then(|()| self.token(number, soon())).and_then(|token| {
                let body = body.to_string();
                let limits = RequestLimits { begin: PER_NODE, answer: WATCH, whole: None };
                self.post(number, "/v3/watch", body.as_bytes(), token.as_deref(), limits)
            });
        match opened {
            Ok(answer) if answer.status().is_success() => {
                Ok(BufReader::new(answer.into_body().into_reader()))
            }
            failed => {
                *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
                let what = failed.err().map_or_else(|| "it did not watch".to_owned(), NodeFailure::text);
                Err(CallError::Unsent(Fault::Unreachable { remote: self.shown.clone(), what }))
            }
        }
    }

    /// As if the engine had given us this token.
    #[cfg(test)]
    pub(crate) fn forge_token(&self, token: &str) {
        *self.token.lock().unwrap() = Some(token.to_owned());
    }

    /// The next calls go to another node than this one.
    pub(crate) fn skip(&self, number: usize) {
        // Another thread may have moved on already.
        let next = (number + 1) % self.nodes.len();
        let _ = self.current.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The addresses of the nodes, in the order of their numbers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| &*node.base)
    }
}

/// How long a request may take.
#[derive(Clone, Copy)]
pub(crate) struct RequestLimits {
    /// Until the node begins to answer.
    begin: Duration,
    /// Until the answer is complete.
    answer: Duration,
    /// All of it; `None` for a watch.
    whole: Option<Duration>,
}

impl RequestLimits {
    pub(crate) fn all(limit: Duration) -> Self {
        Self { begin: limit, answer: limit, whole: Some(limit) }
    }
}

/// What an answer says. A proxy may answer with a page of its own.
fn understood<T: DeserializeOwned>(text: &[u8]) -> NodeResult<T> {
    serde_json::from_slice(text)
        .map_err(|error| NodeFailure::Lost(format!("its answer cannot be read: {error}")))
}

/// The time until then. A failure if there is none, because the HTTP library would wait for a second.
fn left_until(over: Instant) -> NodeResult<Duration> {
    let left = over.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(NodeFailure::Unsent("the time for this call is over".to_owned()))
    } else {
        Ok(left)
    }
}
