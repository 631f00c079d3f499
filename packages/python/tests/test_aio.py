"""asyncio: the same, and the loop goes on."""

import asyncio
import threading
import time

import pytest
import tollgate
from tollgate.aio import Workspace


def run(coroutine):
    return asyncio.run(coroutine)


def test_reads_writes_and_claims(folder):
    async def story():
        workspace = Workspace(folder)
        (folder / "f").write_text("one")
        async with workspace.turn(agent="blue") as turn:
            assert (await turn.read("f")).text == "one"
            await turn.write("f", "two")
            (folder / "f").write_text("three")
            with pytest.raises(tollgate.StaleFile):
                await turn.edit("f", "three", "four")
        with pytest.raises(tollgate.Fault, match="has ended"):
            await turn.read("f")
        vault = await workspace.vault(create=True)
        await vault.add("water", "x")
        async with vault.claim_next(agent="blue") as claim:
            assert await claim.verify()
            async with claim.turn() as turn:
                await turn.write("g", "x")
        assert [task["task"] for task in await vault.list("Done")] == ["water.md"]

    run(story())


def test_a_cancelled_task_gives_its_claim_back(folder):
    async def story():
        vault = await Workspace(folder).vault(create=True)
        await vault.add("water", "x")
        claimed = asyncio.Event()

        async def work():
            async with vault.claim_next(agent="blue"):
                claimed.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await claimed.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await vault.get("water"))["state"] == "Needs_Action"
        async with vault.claim_next(agent="red") as claim:
            assert claim.task == "water.md"

    run(story())


def test_the_loop_goes_on_while_a_call_waits(folder):
    """The call waits for a lock that only the loop releases."""
    import fcntl

    async def story():
        workspace = Workspace(folder)
        (folder / "f").write_text("x")
        turn = await workspace.turn(agent="blue")
        await turn.read("f")
        locks = [open(path, "rb+") for path in sorted((folder / ".tollgate/locks").iterdir())]
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        writing = asyncio.create_task(turn.write("f", "y"))
        await asyncio.sleep(0)
        assert not writing.done()
        for lock in locks:
            lock.close()
        await writing
        assert (folder / "f").read_text() == "y"

    run(story())
