"""The same classes for asyncio: every call that may wait runs in a thread, so that it does not block the loop.

```python
from tollgate.aio import Workspace

async with Workspace(".").turn(agent="blue") as turn:
    text = (await turn.read("notes.md")).text
```

A call that is cancelled is still carried out to its end, because a half-made change is no change. A claim whose result nobody
received ends by itself.
"""

from __future__ import annotations

from asyncio import to_thread
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from ._native import Claim as NativeClaim
from ._native import Read
from ._native import Turn as NativeTurn
from ._native import Vault as NativeVault
from ._native import Workspace as NativeWorkspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from os import PathLike
    from types import TracebackType

    from .types import Applied, BlamedLine, Change, Landed, Merge, PastChange, Renewed, State, Task

__all__ = ["Claim", "Turn", "Vault", "Workspace"]

T = TypeVar("T")


class _Opening(Generic[T]):
    """What `await` opens, and `async with` opens and closes."""

    def __init__(self, open_it: Callable[[], Awaitable[T]]) -> None:
        self._open_it = open_it
        self._opened: T | None = None

    def __await__(self) -> Generator[object, None, T]:
        return self._open_it().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open_it()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened = self._opened
        assert isinstance(opened, (Turn, Claim))
        inner = opened.inner
        await to_thread(lambda: inner.__exit__(kind, error, trace))


class Workspace:
    """A folder that agents and people share."""

    def __init__(self, path: str | PathLike[str] | NativeWorkspace) -> None:
        """Opens the folder. This reads a few small files and is the only call that does not wait in a thread."""
        self.inner = path if isinstance(path, NativeWorkspace) else NativeWorkspace(path)

    @property
    def path(self) -> str:
        return self.inner.path

    def turn(self, agent: str | None = None) -> _Opening[Turn]:
        """Begins a turn: `async with workspace.turn("blue") as turn`, or `turn = await workspace.turn("blue")`."""

        async def begin() -> Turn:
            return Turn(await to_thread(self.inner.turn, agent))

        return _Opening(begin)

    async def vault(self, *, create: bool = False) -> Vault:
        """The tasks of the workspace."""
        return Vault(await to_thread(lambda: self.inner.vault(create=create)))

    async def history(
        self,
        path: str | PathLike[str] | None = None,
        *,
        agent: str | None = None,
        task: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> list[PastChange]:
        """What agents have changed, the newest first."""
        return await to_thread(
            lambda: self.inner.history(path, agent=agent, task=task, since=since, limit=limit)
        )

    async def blame(self, path: str | PathLike[str], *, why: bool = False) -> list[BlamedLine]:
        """Who wrote each line of a file."""
        return await to_thread(lambda: self.inner.blame(path, why=why))


class Turn:
    """The work of one agent from a request to its answer."""

    def __init__(self, inner: NativeTurn) -> None:
        self.inner = inner

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def agent(self) -> str:
        return self.inner.agent

    async def read(
        self, path: str | PathLike[str], *, lines: tuple[int, int | None] | None = None
    ) -> Read:
        return await to_thread(lambda: self.inner.read(path, lines=lines))

    async def write(
        self, path: str | PathLike[str], content: str | bytes, *, expected_hash: str | None = None
    ) -> Applied:
        return await to_thread(lambda: self.inner.write(path, content, expected_hash=expected_hash))

    async def create(self, path: str | PathLike[str], content: str | bytes) -> Applied:
        return await to_thread(self.inner.create, path, content)

    async def edit(
        self, path: str | PathLike[str], old: str, new: str, *, all: bool = False, expected_hash: str | None = None
    ) -> Applied:
        return await to_thread(lambda: self.inner.edit(path, old, new, all=all, expected_hash=expected_hash))

    async def delete(self, path: str | PathLike[str], *, expected_hash: str | None = None) -> Applied:
        return await to_thread(lambda: self.inner.delete(path, expected_hash=expected_hash))

    async def move_file(
        self, path: str | PathLike[str], to: str | PathLike[str], *, expected_hash: str | None = None
    ) -> Applied:
        return await to_thread(lambda: self.inner.move_file(path, to, expected_hash=expected_hash))

    async def apply(self, changes: Iterable[Change]) -> list[Applied]:
        return await to_thread(self.inner.apply, changes)

    async def initial_hash(self, path: str | PathLike[str]) -> str | None:
        return await to_thread(self.inner.initial_hash, path)

    async def merge(self, path: str | PathLike[str]) -> Merge:
        return await to_thread(self.inner.merge, path)

    async def end(self) -> None:
        await to_thread(self.inner.end)


class Vault:
    """The tasks of a workspace."""

    def __init__(self, inner: NativeVault) -> None:
        self.inner = inner

    async def add(self, task: str, text: str) -> Landed:
        return await to_thread(self.inner.add, task, text)

    async def list(self, state: State | None = None) -> list[Task]:
        return await to_thread(self.inner.list, state)

    async def get(self, task: str) -> Task:
        return await to_thread(self.inner.get, task)

    def claim(
        self, task: str, agent: str | None = None, *, tenure: Literal["held", "leased"] = "held"
    ) -> _Opening[Claim]:
        async def claim() -> Claim:
            return Claim(await to_thread(lambda: self.inner.claim(task, agent, tenure=tenure)))

        return _Opening(claim)

    def claim_next(
        self, agent: str | None = None, *, tenure: Literal["held", "leased"] = "held"
    ) -> _Opening[Claim]:
        async def claim() -> Claim:
            return Claim(await to_thread(lambda: self.inner.claim_next(agent, tenure=tenure)))

        return _Opening(claim)


class Claim:
    """An agent owns a task."""

    def __init__(self, inner: NativeClaim) -> None:
        self.inner = inner

    @property
    def task(self) -> str:
        return self.inner.task

    @property
    def agent(self) -> str:
        return self.inner.agent

    @property
    def claim_id(self) -> str:
        return self.inner.claim_id

    @property
    def mode(self) -> str:
        return self.inner.mode

    @property
    def path(self) -> str | None:
        return self.inner.path

    @property
    def action(self) -> str | None:
        return self.inner.action

    @property
    def ended(self) -> bool:
        return self.inner.ended

    def turn(self) -> _Opening[Turn]:
        """Begins a turn of the owner, whose writes are refused (`Fenced`) once the claim is lost."""

        async def begin() -> Turn:
            return Turn(await to_thread(self.inner.turn))

        return _Opening(begin)

    def fence(self, turn: Turn) -> None:
        """From now on, this turn's writes are refused (`Fenced`) once the claim is lost."""
        self.inner.fence(turn.inner)

    async def text(self) -> str:
        return await to_thread(self.inner.text)

    async def verify(self) -> bool:
        return await to_thread(self.inner.verify)

    async def renew(self) -> Renewed:
        return await to_thread(self.inner.renew)

    async def progress(self, text: str) -> None:
        await to_thread(self.inner.progress, text)

    async def draft(self, text: str) -> None:
        await to_thread(self.inner.draft, text)

    async def release(
        self,
        result: Literal["success", "failure"] = "success",
        *,
        to: State | None = None,
        note: str | None = None,
    ) -> Landed:
        return await to_thread(lambda: self.inner.release(result, to=to, note=note))

    async def give_back(self) -> Landed:
        return await to_thread(self.inner.give_back)
