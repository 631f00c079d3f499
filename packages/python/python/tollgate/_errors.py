"""What tollgate raises: a refusal of the guard, a denial of the vault, or a fault. Each carries its payload."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .types import Payload, Report


class TollgateError(Exception):
    """The call was not carried out, and nothing was changed."""


class Refused(TollgateError):
    """The guard refused to change or to read a file."""

    def __init__(self, message: str, payloads: list[Payload], reports: list[Report]) -> None:
        super().__init__(message, payloads, reports)
        self.message = message
        #: One for each refused file, sorted by path.
        self.payloads = payloads
        #: The same for the agent: what happened, and what to do.
        self.reports = reports

    def __str__(self) -> str:
        return self.message

    @property
    def payload(self) -> Payload:
        """The first refusal, in five keys."""
        return self.payloads[0]

    @property
    def report(self) -> Report:
        """The first refusal, for the agent."""
        return self.reports[0]


class StaleFile(Refused):
    """The file is not what the agent last knew: read it again, redo the change, then write."""


class FileBusy(Refused):
    """Another program is writing the file, or another agent is about to: try again in a moment."""


class UnreadFile(Refused):
    """The settings ask for a read before a write: read the file first."""


class UnreadableFile(Refused):
    """The last read of the file failed: read it first."""


class OutsideWorkspace(Refused):
    """The path leads out of the workspace."""


class ProtectedPath(Refused):
    """Agents must not change this path."""


class NotAFile(Refused):
    """The path is a folder, a pipe or a device."""


class HardLinked(Refused):
    """The file has other names, and a replacement would separate them."""


class ReadOnly(Refused):
    """The file is read-only."""


class TextNotFound(Refused):
    """The old text of an edit is not in the file, or more than once."""


class Fenced(Refused):
    """The turn works under a claim that is lost: stop working on that task."""


class OtherTree(Refused):
    """The file is in another working tree of the repository than the one in which the agent began."""


class PremiseChanged(Refused):
    """Files that the turn has read were changed since: read them again first (`premises = "refuse"`)."""


class Denied(TollgateError):
    """The vault did not give the task, or the caller does not own it."""

    def __init__(self, message: str, payload: dict[str, Any]) -> None:
        super().__init__(message, payload)
        self.message = message
        #: What `tollgate task claim --json` prints.
        self.payload = payload

    def __str__(self) -> str:
        return self.message

    @property
    def reason(self) -> str:
        """One word: lost, not_eligible, blocked, incomplete, none or not_owner."""
        return str(self.payload["reason"])


class NothingToClaim(Denied):
    """There is no task to claim."""


class NotOwner(Denied):
    """The claim does not own the task any more: stop working on it."""


class Fault(TollgateError):
    """Something outside tollgate's rules went wrong: a full disk, a missing permission, a name that is not valid."""

    def __init__(self, message: str, payload: dict[str, str]) -> None:
        super().__init__(message, payload)
        self.message = message
        #: The keys `error`, `message` and perhaps `hint`.
        self.payload = payload

    def __str__(self) -> str:
        hint = self.payload.get("hint")
        return f"{self.message}\nhint: {hint}" if hint else self.message

    @property
    def code(self) -> str:
        """A stable name, such as DISK_FULL."""
        return self.payload["error"]


class NotFound(Fault, FileNotFoundError):
    """The file, or the task, does not exist."""

    def __init__(self, message: str, payload: dict[str, str]) -> None:
        super().__init__(message, payload)
        self.errno, self.strerror = 2, message


_REFUSALS: dict[str, type[Refused]] = {
    "STALE_FILE": StaleFile,
    "FILE_BUSY": FileBusy,
    "UNREAD_FILE": UnreadFile,
    "UNREADABLE_FILE": UnreadableFile,
    "OUTSIDE_WORKSPACE": OutsideWorkspace,
    "PROTECTED_PATH": ProtectedPath,
    "NOT_A_FILE": NotAFile,
    "HARD_LINKED": HardLinked,
    "READ_ONLY": ReadOnly,
    "TEXT_NOT_FOUND": TextNotFound,
    "FENCED": Fenced,
    "OTHER_TREE": OtherTree,
    "PREMISE_CHANGED": PremiseChanged,
}


def exception(failure: dict[str, Any]) -> TollgateError:
    """The exception for a failure of the native module."""
    message, payload = failure["message"], failure["payload"]
    match failure["kind"]:
        case "refused":
            kind = _REFUSALS.get(payload["error_type"], Refused)
            return kind(message, failure["payloads"], failure["reports"])
        case "denied":
            reasons: dict[str, type[Denied]] = {"not_owner": NotOwner}
            if payload["task"] is None:
                return NothingToClaim(message, payload)
            return reasons.get(payload["reason"], Denied)(message, payload)
        case _:
            return (NotFound if payload["error"] == "NOT_FOUND" else Fault)(message, payload)
