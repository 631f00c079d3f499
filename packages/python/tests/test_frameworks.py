"""The tools in the real frameworks, with scripted models."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from script import Script
from tollgate import Denied, Fenced, Workspace
from tollgate.tools import AgentTools


@pytest.fixture
def story(folder: Path) -> Script:
    (folder / "notes.md").write_text("one\n")
    Workspace(folder).vault(create=True).add("water", "# Water the plants\n")
    return Script(folder)


def test_what_an_agent_does_not_release_is_given_back(folder, story):
    async def work() -> None:
        async with AgentTools(folder, "blue") as kit:
            await kit.claim_task("water")
            with pytest.raises(Denied):
                Workspace(folder).vault().claim("water", "red")

    asyncio.run(work())
    Workspace(folder).vault().claim("water", "red").release()


def test_an_agent_that_lost_its_task_writes_no_more(folder, story):
    async def work() -> None:
        async with AgentTools(folder, "blue") as kit:
            await kit.read_file("notes.md")
            await kit.claim_task("water")
            # A person moves the task back by hand, and another agent gets it.
            (folder / "vault/In_Progress/blue/water.md").rename(folder / "vault/Needs_Action/water.md")
            Workspace(folder).vault().claim("water", "red", tenure="leased")
            with pytest.raises(Fenced):
                await kit.write_file("notes.md", "too late\n")

    asyncio.run(work())
    assert (folder / "notes.md").read_text() == "one\n"


def test_openai_agents(story):
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )
    from tollgate import openai_agents

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            last = input[-1] if isinstance(input, list) else {}
            call = story.next(last.get("output"))
            if call is None:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                output: Any = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            else:
                name, arguments = call
                call_id = f"call{len(story.told)}"
                output = ResponseFunctionToolCall(
                    call_id=call_id, name=name, arguments=json.dumps(arguments), type="function_call"
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    async def run() -> None:
        set_tracing_disabled(True)
        async with AgentTools(story.folder, "blue") as kit:
            agent = Agent(name="blue", model=Scripted(), tools=openai_agents.tools(kit))
            result = await Runner.run(agent, "go", max_turns=20)
        assert result.final_output == "done"

    asyncio.run(run())
    story.check()


@pytest.mark.parametrize("way", ["ainvoke", "invoke"])
def test_langchain_and_langgraph(story, way):
    from langchain.agents import create_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from tollgate import langchain

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            last = messages[-1]
            if isinstance(last, ToolMessage) and "STALE_FILE" in str(last.content):
                assert last.status == "error"
            call = story.next(str(last.content) if isinstance(last, ToolMessage) else None)
            calls = [] if call is None else [{"name": call[0], "args": call[1], "id": f"call{len(story.told)}"}]
            return ChatResult(generations=[ChatGeneration(message=AIMessage(content="", tool_calls=calls))])

    with AgentTools(story.folder, "blue") as kit:
        agent = create_agent(Scripted(), tools=langchain.tools(kit))
        request: Any = {"messages": [("user", "go")]}
        asyncio.run(agent.ainvoke(request)) if way == "ainvoke" else agent.invoke(request)
    story.check()


def test_pydantic_ai(story):
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel
    from tollgate import pydantic_ai

    def scripted(messages: Any, info: Any) -> ModelResponse:
        last = messages[-1].parts[-1]
        told = str(last.content) if isinstance(last, (ToolReturnPart, RetryPromptPart)) else None
        call = story.next(told)
        return ModelResponse(parts=[TextPart("done") if call is None else ToolCallPart(call[0], call[1])])

    with AgentTools(story.folder, "blue") as kit:
        agent = Agent(FunctionModel(scripted), tools=pydantic_ai.tools(kit))
        assert agent.run_sync("go").output == "done"
    story.check()
