"""The story of a stale write and its recovery, with the official Python client.

usage: python story.py stdio COMMAND ARGS... | http URL      (the folder is in WORKSPACE)
"""

import asyncio
import json
import os
import pathlib
import sys

from mcp import Client, StdioServerParameters

door, where, *args = sys.argv[1:]
root = pathlib.Path(os.environ["WORKSPACE"])
server = StdioServerParameters(command=where, args=args) if door == "stdio" else where
# Over HTTP the newest protocol keeps no state between calls, so the client passes its turn_id.
stateless = door == "http"


async def main():
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == 29
        turn = {}

        async def call(name, **arguments):
            return await client.call_tool(name, arguments | turn)

        if stateless:
            turn["turn_id"] = (await call("begin_turn")).structured_content["turn_id"]
        file = root / "story.txt"
        file.write_text("one\n")
        read = await call("read_text_file", path="story.txt")
        assert read.structured_content == {"content": "one\n"}
        assert len(read.meta["sha256"]) == 64
        file.write_text("foreign\n")

        refused = await call("write_file", path="story.txt", content="mine\n")
        assert refused.is_error
        assert refused.structured_content["error_type"] == "STALE_FILE"
        assert refused.structured_content["expected_hash"] == read.meta["sha256"]
        assert json.loads(refused.content[0].text)["error_type"] == "STALE_FILE"
        assert file.read_text() == "foreign\n"

        again = await call("read_text_file", path="story.txt")
        text = again.structured_content["content"]
        written = await call("write_file", path="story.txt", content=text + "mine\n")
        assert not written.is_error
        assert file.read_text() == "foreign\nmine\n"

        (root / "dot.png").write_bytes(bytes([1, 2, 3]))
        media = await call("read_media_file", path="dot.png")
        assert media.content[0].type == "image"
        outside = await call("read_text_file", path="../x")
        assert outside.structured_content["error_type"] == "OUTSIDE_WORKSPACE"
        missing = await call("read_text_file", path="missing")
        assert missing.is_error

        # A task is listed, claimed, refused to a second claim, and released.
        assert (await call("list_tasks")).structured_content["total"] == 1
        claimed = (await call("claim_task", task="water")).structured_content
        assert claimed["claimed"] and ("lease_until" in claimed) == stateless
        lost = await call("claim_task", task="water")
        assert lost.is_error and lost.structured_content["reason"] == "lost"
        own = {"task": "water", "claim_id": claimed["claim_id"]}
        assert (await call("renew_task", **own)).structured_content["claim_id"] == own["claim_id"]
        assert (await call("report_progress", **own, text="filled the can")).structured_content["noted"]
        released = await call("release_task", **own, result="success")
        assert released.structured_content["state"] == "Done"
        assert "filled the can" in (root / "vault/Done/water.md").read_text()
        refused = await call("release_task", **own, result="success")
        assert refused.is_error and refused.structured_content["reason"] == "not_owner"

        # Concurrent calls on one connection and in one turn.
        names = [f"many{number}.txt" for number in range(20)]
        results = await asyncio.gather(*(call("write_file", path=name, content=name) for name in names))
        assert not any(result.is_error for result in results)
        assert all((root / name).read_text() == name for name in names)


asyncio.run(main())
print("the story is complete")
