//! Messages as lines, for standard input and output.
//!
//! Every request with an id gets an answer, even an invalid one: otherwise its client would wait forever. A line without
//! an id, or one that is not JSON, is skipped.
//!
//! A client may send requests without waiting for answers. When there is no [`Room`], no further line is read until an
//! answer has been sent, so that the client waits and not the server's memory. An answer becomes a line only when it is
//! its turn to be written.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, GetExtensions, GetMeta, ProtocolVersion,
    RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

use super::room::{self, LONGEST, MOST_VALUES, Room, Space};

/// The largest buffer that is kept between messages. A larger one is freed.
const KEPT: usize = 1 << 20;

/// The capacity of a pipe.
const PIPE: usize = 64 << 10;

type IncomingMessage = RxJsonRpcMessage<RoleServer>;
type OutgoingMessage = TxJsonRpcMessage<RoleServer>;

/// The room of each request that is not answered yet.
type Rooms = Arc<SyncMutex<HashMap<RequestId, Room>>>;

pub(crate) struct Lines<R, W> {
    input: BufReader<R>,
    /// The start of a line whose end has not arrived. A read may be cancelled at any time and continues here.
    line: Vec<u8>,
    /// The line is too long, so the rest of it is skipped.
    too_long: bool,
    output: Arc<Mutex<Option<W>>>,
    /// A request has determined the protocol version of this connection.
    settled: bool,
    /// What was read and waits for room. A read may be cancelled at any time, so nothing may be only in its variables.
    waiting: Option<(LineContent, usize)>,
    space: Space,
    rooms: Rooms,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(input: R, output: W) -> Self {
        Self {
            input: BufReader::with_capacity(PIPE, input),
            line: Vec::new(),
            too_long: false,
            output: Arc::new(Mutex::new(Some(output))),
            settled: false,
            waiting: None,
            space: Space::new(),
            rooms: Rooms::default(),
        }
    }

    /// The next line without its line end; `None` at the end of the input. A line that is too long is an error.
    async fn next_line(&mut self) -> Option<Result<Vec<u8>, ()>> {
        loop {
            let available = match self.input.fill_buf().await {
                Ok([]) | Err(_) => return None,
                Ok(available) => available,
            };
            let end = available.iter().position(|&byte| byte == b'\n');
            let taken = end.unwrap_or(available.len());
            self.too_long |= self.line.len() + taken > LONGEST;
            if self.too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.input.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Some(if std::mem::take(&mut self.too_long) { Err(()) } else { Ok(line) });
            }
        }
    }

    /// The content of a line, and its size in memory.
    fn parsed(&mut self, read: Result<Vec<u8>, ()>) -> (LineContent, usize) {
        let Ok(line) = read else { return (LineContent::Wrong(too_long()), 0) };
        let (parsed, size) = match room::size(&line) {
            Some(size) => (parse(&line), size),
            None => (too_many_values(&line), 0),
        };
        if line.capacity() <= KEPT && self.line.capacity() == 0 {
            self.line = line;
            self.line.clear();
        }
        (parsed, size)
    }

    /// The room of a request is taken until the request is answered, or until the work on a cancelled one has ended.
    fn enter(&mut self, message: &mut IncomingMessage, room: Room) {
        match message {
            IncomingMessage::Request(request) => {
                request.request.extensions_mut().insert::<Room>(room.clone());
                locked(&self.rooms).insert(request.id.clone(), room);
            }
            IncomingMessage::Notification(notification) => {
                // A cancelled request gets no answer.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    locked(&self.rooms).remove(id);
                }
            }
            _ => {}
        }
    }

    /// Whether to pass the message to the SDK. Until a request has determined the protocol version, the SDK would close the
    /// connection on anything that is not a request.
    fn is_welcome(&mut self, message: &IncomingMessage) -> bool {
        let IncomingMessage::Request(request) = message else { return self.settled };
        self.settled |= match &request.request {
            ClientRequest::InitializeRequest(_) => true,
            ClientRequest::DiscoverRequest(_) => false,
            other => other.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty(),
        };
        true
    }
}

/// The content of a line.
enum LineContent {
    Message(Box<IncomingMessage>),
    /// The answer to an invalid request, as a line.
    Wrong(Vec<u8>),
    Nothing,
}

fn parse(line: &[u8]) -> LineContent {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let error = match serde_json::from_slice(line) {
        Ok(message) => return LineContent::Message(Box::new(message)),
        Err(error) => error,
    };
    let Some(id) = id_of_request(line) else { return LineContent::Nothing };
    let read = serde_json::from_str::<serde_json::Value>(id.get());
    let known = read.as_ref().is_ok_and(|id| id.is_string() || id.as_i64().is_some());
    // An answer that repeats what is not JSON, such as `1e400`, could not be read.
    let id = if read.is_ok() { id.get() } else { "null" };
    let (code, words) = match error.classify() {
        _ if !known => (
            ErrorCode::INVALID_REQUEST,
            "the id must be a string, or a whole number between -2^63 and 2^63-1",
        ),
        // The search for the id has skipped the rest of the line, and not looked at its depth, its numbers and its texts.
        Category::Syntax | Category::Eof => (
            ErrorCode::INVALID_REQUEST,
            "the request is nested deeper than 128 levels, or a number or a text in it is invalid",
        ),
        _ => (ErrorCode::INVALID_PARAMS, "invalid parameters for this method"),
    };
    LineContent::Wrong(wrong(id, code, words))
}

/// What identifies a request. The other parts of the line are skipped, however deep they are nested.
#[derive(Deserialize)]
struct Head<'a> {
    jsonrpc: String,
    #[serde(rename = "method")]
    _method: String,
    #[serde(borrow)]
    id: &'a RawValue,
}

/// The id exactly as it was sent, if the line is a request, for which a client is waiting.
fn id_of_request(line: &[u8]) -> Option<&RawValue> {
    let head: Head<'_> = serde_json::from_slice(line).ok()?;
    let is_id =
        head.id.get().starts_with(['"', '-']) || head.id.get().starts_with(|c: char| c.is_ascii_digit());
    // The answer repeats it, so it may not be endless.
    (head.jsonrpc == "2.0" && is_id && head.id.get().len() <= LONGEST_ID).then_some(head.id)
}

/// The longest id that is repeated in an answer to an invalid request.
const LONGEST_ID: usize = 4096;

/// The answer to an invalid request.
fn wrong(id: &str, code: ErrorCode, words: &str) -> Vec<u8> {
    let words = serde_json::Value::from(words);
    let code = code.0;
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":{words}}}}}\n")
        .into_bytes()
}

/// The answer to a request with more values than the memory should hold.
fn too_many_values(line: &[u8]) -> LineContent {
    let words = format!("the request has more than {MOST_VALUES} values");
    match id_of_request(line) {
        // An id that is not JSON, such as `1e400`, is not repeated.
        Some(id) if serde_json::from_str::<serde_json::Value>(id.get()).is_ok() => {
            LineContent::Wrong(wrong(id.get(), ErrorCode::INVALID_REQUEST, &words))
        }
        Some(_) => LineContent::Wrong(wrong("null", ErrorCode::INVALID_REQUEST, &words)),
        None => LineContent::Nothing,
    }
}

/// The answer to a line that is too long to be read.
fn too_long() -> Vec<u8> {
    let error = ErrorData::new(
        ErrorCode::INVALID_REQUEST,
        format!("the message is longer than {} MiB", LONGEST >> 20),
        None,
    );
    line(&OutgoingMessage::error(error, None)).unwrap_or_default()
}

fn line(message: &OutgoingMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

fn locked(rooms: &Rooms) -> std::sync::MutexGuard<'_, HashMap<RequestId, Room>> {
    rooms.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line, which is made only now: of all answers that wait, one is in memory as a line. Concurrent calls do not mix
/// their lines.
async fn put<W: AsyncWrite + Unpin>(
    output: Arc<Mutex<Option<W>>>,
    line: impl FnOnce() -> io::Result<Vec<u8>>,
) -> io::Result<()> {
    let mut output = output.lock().await;
    let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    output.write_all(&line()?).await?;
    output.flush().await
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: OutgoingMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            OutgoingMessage::Response(response) => Some(response.id.clone()),
            OutgoingMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (output, rooms) = (self.output.clone(), self.rooms.clone());
        async move {
            let sent = put(output, move || line(&message)).await;
            // Only now: an answer that the client does not take is in memory, too.
            drop(answered.and_then(|id| locked(&rooms).remove(&id)));
            sent
        }
    }

    async fn receive(&mut self) -> Option<IncomingMessage> {
        loop {
            if self.waiting.is_none() {
                let read = self.next_line().await?;
                self.waiting = Some(self.parsed(read));
            }
            let size = self.waiting.as_ref().map_or(0, |(_, size)| *size);
            let room = self.space.enter(size).await?;
            match self.waiting.take()?.0 {
                LineContent::Message(mut message) if self.is_welcome(&message) => {
                    self.enter(&mut message, room);
                    return Some(*message);
                }
                LineContent::Message(_) | LineContent::Nothing => {}
                LineContent::Wrong(answer) => {
                    let output = self.output.clone();
                    // In a task of its own: if this read is cancelled, half a line must not stay on the stream.
                    tokio::spawn(async move {
                        let _ = put(output, || Ok(answer)).await;
                        drop(room);
                    });
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.output.lock().await.take();
        Ok(())
    }
}
