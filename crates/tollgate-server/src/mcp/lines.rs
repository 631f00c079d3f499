//! Messages as lines, the form they have on standard input and output.
//!
//! Every request that has an id gets an answer, also one that makes no sense: a client that waits for ever is worse off
//! than one that is told. What has no id, or is no JSON, is passed over.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, GetMeta, ProtocolVersion, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// The longest message that is read. It has to hold the largest file that somebody writes in one call; without any
/// bound a peer that never ends its line would take all memory.
const LONGEST: usize = 1 << 30;

/// A buffer that is kept between messages. One that a large message has made larger is given back.
const KEPT: usize = 1 << 20;

/// As much as a pipe holds.
const PIPE: usize = 64 << 10;

type Received = RxJsonRpcMessage<RoleServer>;
type Sent = TxJsonRpcMessage<RoleServer>;

pub(crate) struct Lines<R, W> {
    input: BufReader<R>,
    /// What has come of a line whose end has not. A read may be given up at any time and is taken up here.
    line: Vec<u8>,
    /// The line is too long, and what is left of it is passed over.
    too_long: bool,
    output: Arc<Mutex<Option<W>>>,
    /// A request has settled how this connection speaks.
    settled: bool,
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
        }
    }

    /// The next line without its end; None when there are no more. One that is too long comes as an error.
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

    /// Whether the message is for the SDK. Before a request has settled how the connection speaks, it would hang up on
    /// everything that is not a request.
    fn is_welcome(&mut self, message: &Received) -> bool {
        let Received::Request(request) = message else { return self.settled };
        self.settled |= match &request.request {
            ClientRequest::InitializeRequest(_) => true,
            ClientRequest::DiscoverRequest(_) => false,
            other => other.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty(),
        };
        true
    }
}

/// What is in a line.
enum Parsed {
    Message(Received),
    /// Something that has to be answered at once.
    Wrong(Sent),
    Nothing,
}

fn parse(line: &[u8]) -> Parsed {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    match serde_json::from_slice(line) {
        Ok(message) => Parsed::Message(message),
        Err(_) => match id_of_request(line) {
            Some(id) => {
                let words = "the parameters are not of the kind that this method takes";
                Parsed::Wrong(error(Some(id), ErrorCode::INVALID_PARAMS, words))
            }
            None => Parsed::Nothing,
        },
    }
}

/// The id, if this is a request that somebody waits for.
fn id_of_request(line: &[u8]) -> Option<RequestId> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let is_request = value["jsonrpc"] == "2.0" && value["method"].is_string();
    match value.get("id").filter(|_| is_request)? {
        Value::String(id) => Some(RequestId::String(id.as_str().into())),
        Value::Number(id) => id.as_i64().map(RequestId::Number),
        _ => None,
    }
}

fn error(id: Option<RequestId>, code: ErrorCode, words: &'static str) -> Sent {
    Sent::error(ErrorData::new(code, words, None), id)
}

/// Writes a message as one line. Several may be asked for at once; each is written whole.
async fn put<W: AsyncWrite + Unpin>(output: Arc<Mutex<Option<W>>>, message: Sent) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    output.write_all(&line).await?;
    output.flush().await
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: Sent) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        put(self.output.clone(), message)
    }

    async fn receive(&mut self) -> Option<Received> {
        loop {
            let parsed = match self.next_line().await? {
                Ok(line) => {
                    let parsed = parse(&line);
                    if line.capacity() <= KEPT && self.line.capacity() == 0 {
                        self.line = line;
                        self.line.clear();
                    }
                    parsed
                }
                Err(()) => Parsed::Wrong(error(None, ErrorCode::INVALID_REQUEST, "the message is too long")),
            };
            match parsed {
                Parsed::Message(message) if self.is_welcome(&message) => return Some(message),
                Parsed::Message(_) | Parsed::Nothing => {}
                Parsed::Wrong(answer) => put(self.output.clone(), answer).await.ok()?,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.output.lock().await.take();
        Ok(())
    }
}
