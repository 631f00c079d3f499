//! Messages as lines, for standard input and output.
//!
//! Every request with an id gets an answer, even an invalid one: otherwise its client would wait forever. A line without
//! an id, or one that is not JSON, is skipped.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, GetMeta, ProtocolVersion, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// The longest message. It must hold the largest file that a client writes in one call. Without a limit, a client that
/// never ends its line would use up all memory.
const LONGEST: usize = 1 << 30;

/// The largest buffer that is kept between messages. A larger one is freed.
const KEPT: usize = 1 << 20;

/// The capacity of a pipe.
const PIPE: usize = 64 << 10;

type Received = RxJsonRpcMessage<RoleServer>;
type Sent = TxJsonRpcMessage<RoleServer>;

pub(crate) struct Lines<R, W> {
    input: BufReader<R>,
    /// The start of a line whose end has not arrived. A read may be cancelled at any time and continues here.
    line: Vec<u8>,
    /// The line is too long, so the rest of it is skipped.
    too_long: bool,
    output: Arc<Mutex<Option<W>>>,
    /// A request has determined the protocol version of this connection.
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

    /// Whether to pass the message to the SDK. Until a request has determined the protocol version, the SDK would close the
    /// connection on anything that is not a request.
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

/// The content of a line.
enum Parsed {
    Message(Received),
    /// An invalid request, and the answer to it.
    Wrong(Sent),
    Nothing,
}

fn parse(line: &[u8]) -> Parsed {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    match serde_json::from_slice(line) {
        Ok(message) => Parsed::Message(message),
        Err(_) => match id_of_request(line) {
            Some(id) => {
                let words = "invalid parameters for this method";
                Parsed::Wrong(error(Some(id), ErrorCode::INVALID_PARAMS, words))
            }
            None => Parsed::Nothing,
        },
    }
}

/// The id, if the line is a request, for which a client is waiting.
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

/// Writes a message as one line. Concurrent calls do not mix their lines.
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
