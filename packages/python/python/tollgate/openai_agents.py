"""Tools for the OpenAI Agents SDK: `Agent(name="blue", tools=openai_agents.tools(kit))`."""

from __future__ import annotations

from typing import Any

from agents import RunContextWrapper, Tool, default_tool_error_function, function_tool

from . import TollgateError
from .tools import AgentTools, explain


def _failure(context: RunContextWrapper[Any], error: Exception) -> str:
    return explain(error) if isinstance(error, TollgateError) else default_tool_error_function(context, error)


def tools(kit: AgentTools) -> list[Tool]:
    """The tools of an agent. A refusal is what the model reads as the result of its call."""
    return [function_tool(function, failure_error_function=_failure) for function in kit.functions()]
