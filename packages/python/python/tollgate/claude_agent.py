"""Tools for the Claude Agent SDK, as a server in this process.

`ClaudeAgentOptions(mcp_servers={"tollgate": claude_agent.server(kit)}, allowed_tools=claude_agent.ALLOWED_TOOLS)`
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server

from . import TollgateError
from .tools import AgentTools, explain

if TYPE_CHECKING:
    from claude_agent_sdk import McpSdkServerConfig

    from .tools import Function

_NAMES = ["read_file", "write_file", "edit_file", "claim_task", "release_task"]

#: The names of the tools in the SDK, if the server is called `tollgate`.
ALLOWED_TOOLS = [f"mcp__tollgate__{name}" for name in _NAMES]


def _schema(function: Function) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    kinds: dict[str, dict[str, Any]] = {"result": {"type": "string", "enum": ["success", "failure"]}}
    return {
        "type": "object",
        "properties": {name: kinds.get(name, {"type": "string"}) for name in parameters},
        "required": [name for name, one in parameters.items() if one.default is inspect.Parameter.empty],
    }


def _tool(function: Function) -> SdkMcpTool[Any]:
    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            text, is_error = await function(**arguments), False
        except TollgateError as error:
            text, is_error = explain(error), True
        return {"content": [{"type": "text", "text": text}], "is_error": is_error}

    return SdkMcpTool(function.__name__, inspect.getdoc(function) or "", _schema(function), call)


def server(kit: AgentTools) -> McpSdkServerConfig:
    """The server with the tools of an agent. A refusal is a result with `is_error`."""
    return create_sdk_mcp_server("tollgate", tools=[_tool(function) for function in kit.functions()])
