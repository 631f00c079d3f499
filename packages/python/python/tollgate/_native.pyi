"""The native module. Import these classes from `tollgate`."""

from collections.abc import Iterable
from os import PathLike
from types import TracebackType
from typing import Any, Literal, final

from .types import Applied, BlamedLine, Change, Landed, Merge, PastChange, Renewed, State, Task

__all__ = ["Claim", "Read", "Turn", "Vault", "Workspace"]

@final
class Workspace:
    """A folder that agents and people share, with tollgate's state in `.tollgate/`, which is created if it is missing."""

    def __new__(cls, path: str | PathLike[str]) -> Workspace: ...
    @property
    def path(self) -> str: ...
    def turn(self, agent: str | None = None) -> Turn:
        """Begins a turn of an agent. Without a name, of the agent in TOLLGATE_AGENT."""

    def vault(self, *, create: bool = False) -> Vault:
        """The tasks of the workspace. With `create`, makes the folders if they are missing."""

    def history(
        self,
        path: str | PathLike[str] | None = None,
        *,
        agent: str | None = None,
        task: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> list[PastChange]:
        """What agents have changed, the newest first. With `path`, only changes of that file, also under its earlier names."""

    def blame(self, path: str | PathLike[str], *, why: bool = False) -> list[BlamedLine]:
        """Who wrote each line of a file; with `why`, also what the agent of the line had read before. Not a read of the file."""

@final
class Read:
    """A file as it was read."""

    @property
    def path(self) -> str: ...
    @property
    def sha256(self) -> str:
        """The hash of the whole file, even if only some lines were read."""

    @property
    def size(self) -> int:
        """The size of the whole file."""

    @property
    def bytes(self) -> bytes: ...
    @property
    def text(self) -> str:
        """The bytes as text. Raises UnicodeDecodeError if they are not UTF-8."""

@final
class Turn:
    """The work of one agent from a request to its answer. It remembers what the agent has read and written.

    Calls of one turn from several threads wait for each other. `expected_hash` overrides what the turn knows: a SHA-256, or
    "absent" if the file must not exist.
    """

    @property
    def id(self) -> str: ...
    @property
    def agent(self) -> str: ...
    def read(self, path: str | PathLike[str], *, lines: tuple[int, int | None] | None = None) -> Read:
        """Reads a file, or a range of lines: numbers from 1, both ends included."""

    def write(self, path: str | PathLike[str], content: str | bytes, *, expected_hash: str | None = None) -> Applied:
        """Writes a file, and creates it if it does not exist."""

    def create(self, path: str | PathLike[str], content: str | bytes) -> Applied:
        """Creates a file, which must not exist."""

    def edit(
        self, path: str | PathLike[str], old: str, new: str, *, all: bool = False, expected_hash: str | None = None
    ) -> Applied:
        """Replaces old text, which occurs exactly once; with `all`, every occurrence."""

    def delete(self, path: str | PathLike[str], *, expected_hash: str | None = None) -> Applied:
        """Deletes a file."""

    def move_file(
        self, path: str | PathLike[str], to: str | PathLike[str], *, expected_hash: str | None = None
    ) -> Applied:
        """Moves a file to another path, which must be free."""

    def apply(self, changes: Iterable[Change]) -> list[Applied]:
        """Makes all of these changes or none."""

    def initial_hash(self, path: str | PathLike[str]) -> str | None:
        """The hash of the turn's first read of a file."""

    def merge(self, path: str | PathLike[str]) -> Merge:
        """Merges the agent's newest refused write with what is on disk. Write the content if it is clean."""

    def end(self) -> None:
        """Ends the turn. A second end does nothing."""

    def __enter__(self) -> Turn: ...
    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> Literal[False]: ...

@final
class Vault:
    """The tasks of a workspace."""

    def add(self, task: str, text: str) -> Landed:
        """Adds a task with this name and this text."""

    def list(self, state: State | None = None) -> list[Task]:
        """The tasks in one state; without one, all that are not done or rejected."""

    def get(self, task: str) -> Task:
        """One task, with its text as `content`."""

    def claim(self, task: str, agent: str | None = None, *, tenure: Literal["held", "leased"] = "held") -> Claim:
        """Claims this task. Raises `Denied` if it cannot be claimed."""

    def claim_next(self, agent: str | None = None, *, tenure: Literal["held", "leased"] = "held") -> Claim:
        """Claims the next task. Raises `NothingToClaim` if there is none."""

@final
class Claim:
    """An agent owns a task.

    A held claim lasts as long as this object, and no longer than the process; a leased one until its lease is over. In a
    `with` block, the task is released with success at the end, as failed after an exception, and given back without
    counting as an attempt after a KeyboardInterrupt or a cancellation.
    """

    @property
    def task(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def claim_id(self) -> str: ...
    @property
    def mode(self) -> str:
        """`execute`, or `draft` if a person must approve the result."""

    @property
    def path(self) -> str | None: ...
    @property
    def action(self) -> str | None: ...
    @property
    def lease_until(self) -> str | None: ...
    @property
    def epoch(self) -> int:
        """The fencing number: larger than that of every earlier claim of the task."""

    @property
    def ended(self) -> bool:
        """Whether it was released, or is known to be lost."""

    @property
    def payload(self) -> dict[str, Any]:
        """What `tollgate task claim --json` prints."""

    def text(self) -> str:
        """The text of the task."""

    def turn(self) -> Turn:
        """Begins a turn of the owner, whose writes are refused (`Fenced`) once the claim is lost."""

    def fence(self, turn: Turn) -> None:
        """From now on, this turn's writes are refused (`Fenced`) once the claim is lost."""

    def verify(self) -> bool:
        """Whether the claim still owns the task."""

    def renew(self) -> Renewed:
        """Extends a lease."""

    def progress(self, text: str) -> None:
        """Adds a progress note to the task."""

    def draft(self, text: str) -> None:
        """Adds a draft to the task, for a person to approve."""

    def release(
        self,
        result: Literal["success", "failure"] = "success",
        *,
        to: State | None = None,
        note: str | None = None,
    ) -> Landed:
        """Releases the task. A failure without `to` means another attempt."""

    def give_back(self) -> Landed:
        """Returns the task, as if nobody had worked on it."""

    def __enter__(self) -> Claim: ...
    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> Literal[False]: ...
