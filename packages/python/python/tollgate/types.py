"""The shapes of what tollgate answers, for type checkers. They are those of the command line with `--json`."""

from typing import Any, Literal, NotRequired, TypedDict

State = Literal["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"]


class Payload(TypedDict):
    """A refusal, for controllers."""

    error_type: str
    file_path: str
    expected_hash: str | None
    actual_hash: str | None
    resolution: str


class Details(TypedDict):
    """The file of a report, and its hashes."""

    path: str
    baseline_hash: str | None
    current_disk_hash: str | None


class Report(TypedDict):
    """A refusal, for the agent."""

    error_type: str
    message: str
    details: Details
    recovery_hint: str


class Applied(TypedDict):
    """A change that was made."""

    file_path: str
    hash_before: str | None
    hash_after: str | None
    change_id: str
    guarantee: str
    moved_to: NotRequired[str]


class Edit(TypedDict):
    """One replacement in a list of changes."""

    oldText: str
    newText: str
    all: NotRequired[bool]


class Change(TypedDict):
    """One change of several: with exactly one of `content`, `edits`, `delete` and `move_to`."""

    path: str
    content: NotRequired[str]
    edits: NotRequired[list[Edit]]
    delete: NotRequired[bool]
    move_to: NotRequired[str]
    #: None: the file must not exist.
    expected_hash: NotRequired[str | None]


class Merge(TypedDict):
    """A refused write, merged with what is on disk."""

    clean: bool
    content: str
    diff: str


class Landed(TypedDict):
    """Where a task is now."""

    task: str
    state: State
    path: str | None


class Renewed(TypedDict):
    """A claim that was renewed."""

    task: str
    claim_id: str
    lease_until: str | None


#: A task of a list, with the keys of `tollgate task list --json`.
Task = dict[str, Any]


class PastChange(TypedDict):
    """A change of one or several files, with the keys of `tollgate history --json`."""

    seq: int
    time: str
    agent: str | None
    turn: str | None
    via: str
    paths: list[str]
    added: int | None
    removed: int | None
    task: NotRequired[str]
    moved: NotRequired[list[dict[str, str]]]
    unknown: NotRequired[str]


class KnownRead(TypedDict):
    """A file that an agent was shown."""

    path: str
    hash: str
    whole: bool
    time: str


class BlamedLine(TypedDict):
    """A line of a file and who wrote it, with the keys of `tollgate blame --json`."""

    line: int
    text: str
    by: Literal["agent", "somebody_else", "commit", "before", "not_kept"]
    agent: str | None
    seq: int | None
    turn: str | None
    time: NotRequired[str]
    task: NotRequired[str]
    commit: NotRequired[str]
    author: NotRequired[str]
    reads: NotRequired[list[KnownRead]]
    reads_unknown: NotRequired[str]
