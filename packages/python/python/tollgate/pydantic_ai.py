"""Tools for Pydantic AI: `Agent(model, tools=pydantic_ai.tools(kit))`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pydantic_ai import ModelRetry, Tool

from . import TollgateError
from .tools import AgentTools, explain

if TYPE_CHECKING:
    from .tools import Function

#: How often in a row one tool may be refused before Pydantic AI stops the run. A refusal is no mistake of the model.
RETRIES = 10


def _tool(function: Function) -> Tool[Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> str:
        try:
            return await function(*args, **kwargs)
        except TollgateError as error:
            raise ModelRetry(explain(error)) from error

    return Tool(call, takes_ctx=False, max_retries=RETRIES)


def tools(kit: AgentTools) -> list[Tool[Any]]:
    """The tools of an agent. A refusal asks the model to try again, and says how."""
    return [_tool(function) for function in kit.functions()]
