"""Many agents, one workspace, nothing lost.

A `Workspace` is a folder that agents and people share. In a `Turn`, an agent reads and writes its files; a write that would
destroy a change the agent has not seen raises `StaleFile`. A `Vault` has tasks, and a `Claim` makes one agent the owner of
one task.
"""

from ._errors import (
    Denied,
    Fault,
    Fenced,
    FileBusy,
    HardLinked,
    NotAFile,
    NotFound,
    NothingToClaim,
    NotOwner,
    OtherTree,
    OutsideWorkspace,
    PremiseChanged,
    ProtectedPath,
    ReadOnly,
    Refused,
    StaleFile,
    TextNotFound,
    TollgateError,
    UnreadableFile,
    UnreadFile,
)
from ._native import Claim, Read, Turn, Vault, Workspace

__all__ = [
    "Claim",
    "Denied",
    "Fault",
    "Fenced",
    "FileBusy",
    "HardLinked",
    "NotAFile",
    "NotFound",
    "NotOwner",
    "NothingToClaim",
    "OtherTree",
    "OutsideWorkspace",
    "PremiseChanged",
    "ProtectedPath",
    "Read",
    "ReadOnly",
    "Refused",
    "StaleFile",
    "TextNotFound",
    "TollgateError",
    "Turn",
    "UnreadFile",
    "UnreadableFile",
    "Vault",
    "Workspace",
]
