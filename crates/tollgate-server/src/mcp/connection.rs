//! One connection: one agent with one running turn.
//!
//! The first call begins the turn. `begin_turn` begins another, which is then the running one; those that were begun
//! before stay until they are ended, because several parts of one client may share the connection, each with its own
//! `turn_id`. When the connection closes, all its turns end, and what it holds is free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tollgate::error::Result;
use tollgate::turn::Session;
use tollgate::vault::Wish;
use tollgate::vault::claim::ClaimId;
use tollgate::vault::hold::Hold;

use super::Server;
use super::answer::Answer;
use super::tools::{self, Call};
use super::turns::{Running, lock};

/// How long a connection lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// Until one side closes it or is gone: stdio. What the agent read in it is known later, and what it has claimed is
    /// its own exactly as long.
    Stream,
    /// Until somebody ends it, or forgets it: an HTTP session. What the agent read in it is known later.
    Session,
    /// One call: HTTP without a session. Nothing is known later but by `turn_id`.
    OneCall,
}

pub(crate) struct Connection {
    pub(crate) server: Server,
    lasting: Lasting,
    session: Session,
    turns: Mutex<Begun>,
    /// The locks of what was claimed here and is held.
    held: Mutex<HashMap<ClaimId, Hold>>,
}

#[derive(Default)]
struct Begun {
    running: Option<Arc<Running>>,
    ids: Vec<String>,
}

impl Connection {
    pub(crate) fn new(server: Server, lasting: Lasting) -> Self {
        let session = match lasting {
            Lasting::Stream | Lasting::Session => Session::default(),
            Lasting::OneCall => server.0.turns.session(),
        };
        Self { server, lasting, session, turns: Mutex::default(), held: Mutex::default() }
    }

    /// Answers a call. `None` if there is no such tool. Blocks.
    pub(crate) fn call(&self, name: &str, mut arguments: Map<String, Value>) -> Option<Answer> {
        let tool = tools::find(name)?;
        let turn_id = match arguments.remove("turn_id") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id),
            Some(_) => {
                return Some(Answer::failure(format!(
                    "invalid arguments for `{name}`: `turn_id` is a string"
                )));
            }
        };
        let turn = match &turn_id {
            Some(id) => match self.server.0.turns.find(id) {
                Some(turn) => Some(turn),
                None => return Some(Answer::failure(unknown_turn(id))),
            },
            None => None,
        };
        let call = Call { tool: tool.name, connection: self, gate: &self.server.0.gate, named: turn };
        Some((tool.run)(&call, Value::Object(arguments)).unwrap_or_else(|answer| answer))
    }

    /// Whether a call without `turn_id` is guarded by what earlier calls read.
    pub(crate) fn remembers(&self) -> bool {
        self.lasting != Lasting::OneCall
    }

    /// The running turn. Begun if there is none.
    pub(crate) fn running(&self) -> Result<Arc<Running>> {
        let mut turns = lock(&self.turns);
        if let Some(running) = &turns.running {
            // It is looked up so that it counts as used. As long as the connection lives, it is not forgotten.
            self.server.0.turns.find(running.id());
            return Ok(running.clone());
        }
        self.begin_locked(&mut turns)
    }

    /// A fresh turn, which is now the running one.
    pub(crate) fn begin(&self) -> Result<Arc<Running>> {
        self.begin_locked(&mut lock(&self.turns))
    }

    fn begin_locked(&self, turns: &mut Begun) -> Result<Arc<Running>> {
        let begun = self.server.0.turns.begin(self.session.clone())?;
        turns.ids.push(begun.id().to_owned());
        turns.running = Some(begun.clone());
        Ok(begun)
    }

    /// Ends a turn; the running one if none is named. Says which it was.
    pub(crate) fn end(&self, named: Option<&Arc<Running>>) -> Option<String> {
        let mut turns = lock(&self.turns);
        let id = match named {
            Some(turn) => turn.id().to_owned(),
            None => turns.running.as_ref()?.id().to_owned(),
        };
        let over = turns.running.take_if(|running| running.id() == id);
        turns.ids.retain(|begun| *begun != id);
        drop(turns);
        drop((over, self.server.0.turns.end(&id)));
        Some(id)
    }
}

/// What is claimed here.
impl Connection {
    /// How a claim made here is to last. Only a stream is known to be over at the moment it is.
    pub(crate) fn tenure(&self) -> Wish {
        match self.lasting {
            Lasting::Stream => Wish::Held,
            Lasting::Session | Lasting::OneCall => Wish::Leased,
        }
    }

    /// Keeps the lock of a claim until the claim, or the connection, is over.
    pub(crate) fn hold(&self, claim: ClaimId, hold: Hold) {
        lock(&self.held).insert(claim, hold);
    }

    /// Whether this claim was made here and is held.
    pub(crate) fn holds(&self, claim: &ClaimId) -> bool {
        lock(&self.held).contains_key(claim)
    }

    /// The claim is over.
    pub(crate) fn let_go(&self, claim: &ClaimId) {
        lock(&self.held).remove(claim);
    }
}

impl Connection {
    /// Ends all turns and claims of the connection. Blocks.
    pub(crate) fn close(&self) {
        self.leftovers().settle();
    }

    fn leftovers(&self) -> Leftovers {
        let mut turns = lock(&self.turns);
        let mut over: Vec<_> = turns.running.take().into_iter().collect();
        if self.remembers() {
            over.extend(std::mem::take(&mut turns.ids).iter().filter_map(|id| self.server.0.turns.end(id)));
        }
        Leftovers { turns: over, held: std::mem::take(&mut *lock(&self.held)), server: self.server.clone() }
    }
}

/// What a connection leaves behind.
struct Leftovers {
    turns: Vec<Arc<Running>>,
    held: HashMap<ClaimId, Hold>,
    server: Server,
}

impl Leftovers {
    fn settle(self) {
        drop(self.turns);
        if !self.held.is_empty() {
            drop(self.held);
            // So that the tasks are there for others at once. If it fails, whoever asks next finds the locks free.
            let _ = self.server.0.tasks.get().map(|tasks| tasks.vault.reclaim(Timestamp::now()));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let left = self.leftovers();
        if left.turns.is_empty() && left.held.is_empty() {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            // A connection is dropped on a thread that must not wait for the disk.
            Ok(runtime) => drop(runtime.spawn_blocking(move || left.settle())),
            Err(_) => left.settle(),
        }
    }
}

fn unknown_turn(id: &str) -> String {
    let id: String = id.chars().take(80).collect();
    format!(
        "turn `{}` is not known: it was ended, or nobody used it for too long\nhint: call begin_turn, read the files \
         you want to change again, then write with the new turn_id",
        id.escape_debug()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::mcp::Options;
    use serde_json::json;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Long enough that a call which does not wait has answered.
    const MOMENT: Duration = Duration::from_millis(60);

    #[test]
    fn a_call_waits_for_the_others_of_its_turn_on_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let server = Server::open(Options::new(folder.path(), "blue".parse().unwrap())).unwrap();
        let connection = Arc::new(Connection::new(server, Lasting::Stream));
        let path = connection.server.0.gate.workspace().canonical("a").unwrap();
        let edits = json!([{"oldText": "one", "newText": "two"}]);
        for (tool, arguments, only_reads) in [
            ("read_text_file", json!({"path": "a"}), true),
            ("read_media_file", json!({"path": "./a"}), true),
            ("read_multiple_files", json!({"paths": ["d/../a"]}), true),
            ("edit_file", json!({"path": "a", "edits": edits, "dryRun": true}), true),
            ("edit_file", json!({"path": "a", "edits": edits}), false),
            ("write_file", json!({"path": "a", "content": "x"}), false),
            (
                "write_files",
                json!({"changes": [{"path": "b", "content": ""}, {"path": "a", "content": "x"}]}),
                false,
            ),
            ("move_file", json!({"source": "d", "destination": "e"}), false),
            ("move_file", json!({"source": "a", "destination": "c"}), false),
            ("delete_file", json!({"path": "a"}), false),
        ] {
            std::fs::write(folder.path().join("a"), "one").unwrap();
            // Of a turn of its own, which has nothing to say against the file.
            let running = connection.begin().unwrap();
            let call = |connection: &Arc<Connection>| {
                let (send, answer) = mpsc::channel();
                let (connection, Value::Object(arguments)) = (connection.clone(), arguments.clone()) else {
                    unreachable!("they are objects")
                };
                std::thread::spawn(move || drop(send.send(connection.call(tool, arguments))));
                answer
            };
            if only_reads {
                let reading = running.reading(&path);
                call(&connection).recv_timeout(Duration::from_secs(60)).expect(tool).unwrap();
                drop(reading);
            }
            let writing = running.writing([&path]);
            let answer = call(&connection);
            assert!(answer.recv_timeout(MOMENT).is_err(), "{tool} did not wait");
            drop(writing);
            let answer = answer.recv_timeout(Duration::from_secs(60)).expect(tool).unwrap();
            assert!(!answer.failed, "{tool}: {answer:?}");
        }
    }
}
