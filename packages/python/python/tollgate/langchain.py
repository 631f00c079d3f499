"""Tools for LangChain and LangGraph: `create_agent(model, tools=langchain.tools(kit))`."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from . import TollgateError
from .tools import AgentTools, explain

if TYPE_CHECKING:
    from .tools import Function


def _tool(function: Function) -> BaseTool:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> str:
        try:
            return await function(*args, **kwargs)
        except TollgateError as error:
            raise ToolException(explain(error)) from error

    @functools.wraps(function)
    def call_now(*args: Any, **kwargs: Any) -> str:
        return asyncio.run(call(*args, **kwargs))

    return StructuredTool.from_function(
        func=call_now, coroutine=call, name=function.__name__, handle_tool_error=True, parse_docstring=True
    )


def tools(kit: AgentTools) -> list[BaseTool]:
    """The tools of an agent. A refusal is a tool message with the status `error`."""
    return [_tool(function) for function in kit.functions()]
