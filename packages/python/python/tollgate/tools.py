"""Tools for agents, without a framework: read, write, edit, claim, release.

The modules `tollgate.openai_agents`, `tollgate.claude_agent`, `tollgate.langchain` and `tollgate.pydantic_ai` hand them to
their frameworks. The docstrings of the five tools are what the model reads.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Literal

from ._errors import NotOwner, Refused, TollgateError
from ._native import Claim, Turn, Workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from os import PathLike
    from types import TracebackType

    Function = Callable[..., Awaitable[str]]

__all__ = ["AgentTools", "explain"]


def explain(error: TollgateError) -> str:
    """What the model is told: for each refused file a report, which says what to do."""
    if isinstance(error, Refused):
        return "\n".join(json.dumps(report) for report in error.reports)
    return str(error)


class AgentTools:
    """The tools of one agent: one turn, and the tasks that it has claimed.

    Use it for one request of the agent, as a context manager. At the end, tasks that the agent has not released are given
    back, and the turn ends.
    """

    def __init__(self, workspace: Workspace | str | PathLike[str], agent: str) -> None:
        self._workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._agent = agent
        self._turn: Turn | None = None
        self._claims: dict[str, Claim] = {}
        self._lock = threading.Lock()

    def functions(self) -> list[Function]:
        """The five tools, as functions."""
        return [self.read_file, self.write_file, self.edit_file, self.claim_task, self.release_task]

    async def read_file(self, path: str) -> str:
        """Read a text file. Read a file before you change it.

        Args:
            path: The file, relative to the workspace.
        """
        return (await asyncio.to_thread(lambda: self._begun().read(path))).text

    async def write_file(self, path: str, content: str) -> str:
        """Write a whole text file, or create it. Refused if somebody has changed the file since you read it: then read it
        again, redo your change on what you find, and write.

        Args:
            path: The file, relative to the workspace.
            content: The new text of the whole file.
        """
        await asyncio.to_thread(lambda: self._begun().write(path, content))
        return f"wrote {path}"

    async def edit_file(self, path: str, old_text: str, new_text: str) -> str:
        """Replace one piece of text in a file. Refused if somebody has changed the file since you read it: then read it
        again.

        Args:
            path: The file, relative to the workspace.
            old_text: The text to replace. It must occur exactly once.
            new_text: The text to put in its place.
        """
        await asyncio.to_thread(lambda: self._begun().edit(path, old_text, new_text))
        return f"edited {path}"

    async def claim_task(self, task: str = "") -> str:
        """Claim a task, so that no other agent works on it. Returns the task and its text.

        Args:
            task: The name of the task. Leave it empty to get the next one.
        """
        return await asyncio.to_thread(self._claim, task)

    async def release_task(self, task: str, result: Literal["success", "failure"], note: str = "") -> str:
        """Release a task that you have claimed: say whether the work succeeded.

        Args:
            task: The name of the task.
            result: `success` if the work is done, `failure` if it has to be tried again.
            note: One sentence about the result.
        """
        return await asyncio.to_thread(self._release, task, result, note)

    def end(self) -> None:
        """Gives back the tasks that were not released, and ends the turn."""
        with self._lock:
            turn, claims = self._turn, list(self._claims.values())
            self._turn = None
            self._claims.clear()
        for claim in claims:
            if not claim.ended:
                try:
                    claim.give_back()
                except NotOwner:
                    pass  # Somebody else has the task, and the agent is told nothing more.
        if turn is not None:
            turn.end()

    def _begun(self) -> Turn:
        with self._lock:
            if self._turn is None:
                self._turn = self._workspace.turn(self._agent)
            return self._turn

    def _claim(self, task: str) -> str:
        vault = self._workspace.vault()
        claim = vault.claim(task, self._agent) if task else vault.claim_next(self._agent)
        claim.fence(self._begun())
        with self._lock:
            self._claims[claim.task] = claim
        return json.dumps({**claim.payload, "text": claim.text()})

    def _release(self, task: str, result: Literal["success", "failure"], note: str) -> str:
        name = task if task.endswith(".md") else f"{task}.md"
        with self._lock:
            claim = self._claims.get(name)
        if claim is None:
            raise TollgateError(f"you have not claimed `{name}`: claim it first")
        return json.dumps(claim.release(result, note=note or None))

    def __enter__(self) -> AgentTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    async def __aenter__(self) -> AgentTools:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.end)
