//! One connection: one agent with one running turn.
//!
//! The first call begins the turn. `begin_turn` begins another one, which is then the running turn. Earlier turns stay
//! until they are ended, because several agents of one client may share the connection, each with its own `turn_id`.
//! When the connection closes, all its turns end and the tasks it holds are free.
//!
//! The server cannot know for which task a write is. So the connection writes nothing while one of its claims is lost, until
//! the agent has heard of the loss: from a tool of the owner, which then forgets the claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::fence::{ClaimFence, WriteFence, first_lost};
use tollgate::gate::Gate;
use tollgate::tasks::VaultHome;
use tollgate::turn::Session;
use tollgate::vault::claim::{Claim, ClaimId, Tenure};
use tollgate::vault::claim_lock::ClaimLock;
use tollgate::vault::{ClaimKind, TaskName};

use super::server::Server;
use super::turns::{RunningTurn, lock};

/// How long a connection lasts, and so how long the server remembers what its agent has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionKind {
    /// Stdio: until one side closes it or dies. Claims are held by a kernel lock for exactly as long.
    Stream,
    /// An HTTP session: until the client ends it or the server drops it as idle.
    Session,
    /// HTTP without a session: one call. Only a `turn_id` links it to other calls.
    OneCall,
}

pub(super) struct McpConnection {
    server: Server,
    kind: ConnectionKind,
    session: Session,
    turns: Mutex<BegunTurns>,
    claims: TakenClaims,
    /// Around the gate of every call.
    fence: WriteFence,
}

/// The claims that a connection has made and not released, and the locks of those that it holds.
type TakenClaims = Arc<Mutex<HashMap<ClaimId, (TaskName, Option<ClaimLock>)>>>;

/// Refuses all writes while one of these claims is lost.
fn fence(server: &Server, claims: &TakenClaims) -> WriteFence {
    let (server, claims) = (server.clone(), Arc::clone(claims));
    Arc::new(move || {
        let taken: Vec<_> = lock(&claims).iter().map(|(id, (task, _))| (task.clone(), id.clone())).collect();
        if taken.is_empty() {
            return Ok(None);
        }
        // It has made these claims.
        let Some(tasks) = server.tasks() else { return Ok(None) };
        let gate = server.gate();
        let workspace = gate.workspace();
        let home = VaultHome::of(workspace.path(), workspace.settings())?;
        let fence = ClaimFence::of(&home, &tasks.vault);
        first_lost(taken.iter().map(|(task, id)| (&fence, task, id)))
    })
}

#[derive(Default)]
struct BegunTurns {
    running: Option<Arc<RunningTurn>>,
    ids: Vec<String>,
}

impl McpConnection {
    pub(super) fn new(server: Server, kind: ConnectionKind) -> Self {
        let session = match kind {
            ConnectionKind::Stream | ConnectionKind::Session => {
                Session::within(Arc::new(server.turns().session()))
            }
            ConnectionKind::OneCall => server.turns().session(),
        };
        let claims = TakenClaims::default();
        let fence = fence(&server, &claims);
        Self { server, kind, session, turns: Mutex::default(), claims, fence }
    }

    /// The gate for a call, fenced by the claims of this connection.
    pub(super) fn gate_for_call(&self) -> Result<Gate> {
        Ok(self.server.gate_for_call()?.fenced(WriteFence::clone(&self.fence)))
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Whether a call without `turn_id` is checked against what earlier calls have read.
    pub(super) fn remembers(&self) -> bool {
        self.kind != ConnectionKind::OneCall
    }

    /// The running turn. Begins one if there is none.
    pub(super) fn running(&self) -> Result<Arc<RunningTurn>> {
        let mut turns = lock(&self.turns);
        if let Some(running) = &turns.running {
            // The lookup marks the turn as used. The connection keeps it alive even if it was idle for too long.
            self.server.turns().find(running.id());
            return Ok(running.clone());
        }
        self.begin_locked(&mut turns)
    }

    /// The running turn, if there is one.
    pub(super) fn has_running(&self) -> Option<Arc<RunningTurn>> {
        lock(&self.turns).running.clone()
    }

    /// Begins a turn, which is then the running one.
    pub(super) fn begin(&self) -> Result<Arc<RunningTurn>> {
        self.begin_locked(&mut lock(&self.turns))
    }

    fn begin_locked(&self, turns: &mut BegunTurns) -> Result<Arc<RunningTurn>> {
        let begun = self.server.turns().begin(&self.server.gate(), self.session.clone())?;
        turns.ids.push(begun.id().to_owned());
        turns.running = Some(begun.clone());
        Ok(begun)
    }

    /// Ends the named turn, or else the running one. Returns its id.
    pub(super) fn end(&self, named: Option<&Arc<RunningTurn>>) -> Option<String> {
        let mut turns = lock(&self.turns);
        let id = match named {
            Some(turn) => turn.id().to_owned(),
            None => turns.running.as_ref()?.id().to_owned(),
        };
        let over = turns.running.take_if(|running| running.id() == id);
        turns.ids.retain(|begun| *begun != id);
        drop(turns);
        drop((over, self.server.turns().end(&id)));
        Some(id)
    }
}

/// The claims made over this connection.
impl McpConnection {
    /// The kind of claim to make. The server learns at once that a stream has ended; with HTTP it needs a lease.
    pub(super) fn tenure(&self) -> ClaimKind {
        match self.kind {
            ConnectionKind::Stream => ClaimKind::Held,
            ConnectionKind::Session | ConnectionKind::OneCall => ClaimKind::Leased,
        }
    }

    /// Remembers a claim, and keeps its lock if it has one, until the claim or the connection ends.
    pub(super) fn keep(&self, claim: ClaimId, task: TaskName, hold: Option<ClaimLock>) {
        lock(&self.claims).insert(claim, (task, hold));
    }

    /// The claim has ended, and the agent knows it.
    pub(super) fn let_go(&self, claim: &ClaimId) {
        lock(&self.claims).remove(claim);
    }

    /// Whether a client of this connection may act on the claim.
    ///
    /// The claim id is written in the task's file, so knowing it proves nothing. A leased claim belongs to the agent,
    /// which may come back over another connection; a held claim belongs to the connection that holds it.
    pub(super) fn owns(&self, claim: &Claim) -> bool {
        let is_given = || self.server.tasks().is_some_and(|tasks| tasks.given.as_ref() == Some(&claim.id));
        claim.agent == *self.server.agent()
            && match claim.tenure {
                Tenure::Leased(_) => true,
                Tenure::Held => {
                    lock(&self.claims).get(&claim.id).is_some_and(|(_, lock)| lock.is_some()) || is_given()
                }
            }
    }
}

impl McpConnection {
    /// Ends all turns and claims of the connection. Blocks.
    pub(super) fn close(&self) {
        self.leftovers().settle();
    }

    fn leftovers(&self) -> ConnectionLeftovers {
        let mut turns = lock(&self.turns);
        let mut over: Vec<_> = turns.running.take().into_iter().collect();
        if self.remembers() {
            over.extend(std::mem::take(&mut turns.ids).iter().filter_map(|id| self.server.turns().end(id)));
        }
        let claims = std::mem::take(&mut *lock(&self.claims));
        let held = claims.into_values().filter_map(|(_, lock)| lock).collect();
        ConnectionLeftovers { turns: over, held, server: self.server.clone() }
    }
}

/// The turns and claims that a closed connection leaves behind.
struct ConnectionLeftovers {
    turns: Vec<Arc<RunningTurn>>,
    held: Vec<ClaimLock>,
    server: Server,
}

impl ConnectionLeftovers {
    fn settle(self) {
        drop(self.turns);
        if !self.held.is_empty() {
            drop(self.held);
            // Makes the tasks claimable at once. If this fails, the next process that looks finds the locks free.
            let _ = self.server.tasks().map(|tasks| tasks.vault.reclaim(Timestamp::now()));
        }
    }
}

impl Drop for McpConnection {
    fn drop(&mut self) {
        let left = self.leftovers();
        if left.turns.is_empty() && left.held.is_empty() {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            // The runtime's own thread drops connections, and it must not wait for the disk.
            Ok(runtime) => drop(runtime.spawn_blocking(move || left.settle())),
            Err(_) => left.settle(),
        }
    }
}
