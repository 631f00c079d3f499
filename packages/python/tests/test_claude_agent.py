"""The tools in the real Claude Agent SDK, with the program that it brings and a scripted server in place of the model."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from script import Script
from tollgate import Workspace
from tollgate.tools import AgentTools


class Server:
    """Answers like the Messages API: with the next call of the script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
                if "count_tokens" in self.path:
                    return self.answer("application/json", json.dumps({"input_tokens": 1}))
                self.answer("text/event-stream", outer.events(body))

            def answer(self, kind: str, text: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def events(self, body: dict[str, Any]) -> str:
        tools = [tool["name"] for tool in body.get("tools", [])]
        # The program also asks for titles and the like, without tools.
        call = self.script.next(self.told(body)) if "mcp__tollgate__read_file" in tools else None
        if call is None:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": "done"}
        else:
            name, arguments = call
            block = {"type": "tool_use", "id": f"call{len(self.script.told)}", "name": f"mcp__tollgate__{name}", "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"m{len(self.script.told)}", "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
        stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
        events = [
            {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        ]
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)

    def told(self, body: dict[str, Any]) -> str | None:
        parts = [part for message in body["messages"] for part in message["content"]]
        results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
        if not results:
            return None
        text = results[-1]["content"]
        text = text if isinstance(text, str) else "".join(part["text"] for part in text)
        if "STALE_FILE" in text:
            assert results[-1]["is_error"]
        return text


def test_claude_agent_sdk(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
    from tollgate import claude_agent

    (folder / "notes.md").write_text("one\n")
    Workspace(folder).vault(create=True).add("water", "# Water the plants\n")
    script = Script(folder)
    server = Server(script)
    environment = {
        "ANTHROPIC_BASE_URL": server.address,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # All tools are in every request, so that the script need not search for them.
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
    }

    async def run() -> None:
        async with AgentTools(folder, "blue") as kit:
            options = ClaudeAgentOptions(
                cwd=folder,
                env=environment,
                setting_sources=[],
                mcp_servers={"tollgate": claude_agent.server(kit)},
                allowed_tools=claude_agent.ALLOWED_TOOLS,
                max_turns=20,
            )
            results = [message async for message in query(prompt="go", options=options)]
        last = results[-1]
        assert isinstance(last, ResultMessage) and not last.is_error, last

    asyncio.run(run())
    script.check()
