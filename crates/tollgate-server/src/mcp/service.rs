//! The protocol: translates tools and answers to MCP, with the official SDK.
//!
//! One service per connection. A call runs on a thread that may block; a panic there cannot take the server down.

use std::io;
use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, Implementation, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProtocolVersion, ResourceContents, ServerCapabilities, ServerConfig, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer::{Item, ToolAnswer};
use super::connection::{ConnectionKind, McpConnection};
use super::lines::Lines;
use super::room::Room;
use super::server::Server;
use super::tools::{self, Hints, Tool};

/// The server as one client sees it.
#[derive(Clone)]
pub(crate) struct ClientService {
    server: Server,
    /// Created by the first call, which shows what kind of connection this is.
    connection: Arc<OnceLock<Arc<McpConnection>>>,
}

impl ClientService {
    pub(crate) fn new(server: &Server) -> Self {
        Self { server: server.clone(), connection: Arc::default() }
    }

    fn connection(&self, kind: ConnectionKind) -> Arc<McpConnection> {
        let new = || Arc::new(McpConnection::new(self.server.clone(), kind));
        self.connection.get_or_init(new).clone()
    }
}

/// Over HTTP, a call of the newer protocol or without a session stands alone. Every other call belongs to a connection.
fn kind(context: &RequestContext<RoleServer>) -> ConnectionKind {
    let Some(parts) = context.extensions.get::<axum::http::request::Parts>() else {
        return ConnectionKind::Stream;
    };
    let stateless = context.protocol_version().is_none_or(|version| version >= ProtocolVersion::V_2026_07_28);
    if stateless || !parts.headers.contains_key("mcp-session-id") {
        ConnectionKind::OneCall
    } else {
        ConnectionKind::Session
    }
}

impl ServerHandler for ClientService {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(
                Implementation::new("tollgate", env!("CARGO_PKG_VERSION")).with_title("tollgate"),
            )
            .with_instructions(tools::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(all_tools().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        all_tools().iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let connection = self.connection(kind(&context));
        let CallToolRequestParams { name, arguments, .. } = request;
        // A cancelled call still occupies a thread, so its room stays taken until the thread is done.
        let room = room(&context);
        let running = self.server.running_call().await;
        let answer = tokio::task::spawn_blocking({
            let name = name.clone();
            move || {
                let answer = tools::call(&connection, &name, arguments.unwrap_or_default());
                let (answer, size) = answer.map(limited).unzip();
                if let (Some(room), Some(running)) = (room, running) {
                    room.keep(running, size.unwrap_or(0));
                }
                answer
            }
        })
        .await
        .map_err(|_| ErrorData::internal_error("internal error in the tool", None))?;
        match answer {
            Some(answer) => Ok(result(answer).into()),
            None => Err(ErrorData::invalid_params(format!("unknown tool: {}", short(&name)), None)),
        }
    }

    // The server does not announce these capabilities. Without these functions the SDK would answer with empty lists.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(absent("prompts/list"))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(absent("resources/list"))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(absent("resources/templates/list"))
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(absent("completion/complete"))
    }

    /// Handles requests that the SDK does not know, and known methods whose parameters have the wrong type.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match request.method.as_str() {
            "tools/call" => ErrorData::invalid_params(
                "tools/call takes `name`, a string, and `arguments`, an object",
                None,
            ),
            method => absent(method),
        })
    }
}

fn absent(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, short(method), None)
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The room of a request, which its transport has given to it.
fn room(context: &RequestContext<RoleServer>) -> Option<Room> {
    let of_http = || context.extensions.get::<axum::http::request::Parts>()?.extensions.get::<Room>();
    context.extensions.get::<Room>().or_else(of_http).cloned()
}

/// The answer, or a failure if it is too large, and its size. All answers of all tools pass here.
fn limited(answer: ToolAnswer) -> (ToolAnswer, usize) {
    match answer.encoded() {
        Some(size) => (answer, size),
        None => (ToolAnswer::too_large(), 0),
    }
}

/// All tools as the protocol describes them, made once: their schemas are large, and a client may ask for them often.
fn all_tools() -> &'static [rmcp::model::Tool] {
    static ALL: OnceLock<Vec<rmcp::model::Tool>> = OnceLock::new();
    ALL.get_or_init(|| tools::TABLE.into_iter().map(described).collect())
}

fn described(tool: &Tool) -> rmcp::model::Tool {
    let hints = ToolAnnotations::new().open_world(false);
    let hints = match tool.hints {
        Hints::Reads => hints.read_only(true),
        Hints::Writes { destructive, idempotent } => {
            hints.read_only(false).destructive(destructive).idempotent(idempotent)
        }
    };
    rmcp::model::Tool::new(tool.name, tool.description, tool.input_schema())
        .with_title(tool.title)
        .with_raw_output_schema(Arc::new(tool.output_schema()))
        .with_annotations(hints)
}

fn result(answer: ToolAnswer) -> CallToolResult {
    let block = |item| match item {
        Item::Text(text) => ContentBlock::text(text),
        Item::Image { data, mime_type } => ContentBlock::image(data, mime_type),
        Item::Audio { data, mime_type } => ContentBlock::audio(data, mime_type),
        Item::Blob { data, mime_type, uri } => {
            ContentBlock::resource(ResourceContents::blob(data, uri).with_mime_type(mime_type))
        }
    };
    let mut result = CallToolResult::default();
    result.content = answer.content.into_iter().map(block).collect();
    result.structured_content = answer.structured;
    result.is_error = answer.failed.then_some(true);
    if !answer.meta.is_empty() {
        let meta: JsonObject = answer.meta;
        result.meta = Some(MetaObject(meta));
    }
    result
}

/// Serves one client on these two streams until it closes them, then ends its turns and claims.
pub async fn serve<R, W>(server: &Server, input: R, output: W) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until(server, input, output, std::future::pending()).await
}

/// Serves one client, as [`serve`] does, until it closes its streams or `stop` is ready.
pub(super) async fn serve_until<R, W>(
    server: &Server,
    input: R,
    output: W,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let service = ClientService::new(server);
    let connection = service.connection(ConnectionKind::Stream);
    let serving = async {
        match service.serve(Lines::new(input, output)).await {
            // The reason why the connection ended does not matter here.
            Ok(running) => drop(running.waiting().await),
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => {}
            Err(error) => return Err(io::Error::other(error.to_string())),
        }
        Ok(())
    };
    let served = tokio::select! {
        served = serving => served,
        () = server.late_write_checks() => Ok(()),
        () = stop => Ok(()),
    };
    let closed = tokio::task::spawn_blocking(move || connection.close()).await;
    served.and(closed.map_err(io::Error::other))
}
