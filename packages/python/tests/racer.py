"""One agent of the race: adds its lines to a file, one at a time, through one of the doors.

`racer.py DOOR NAME FOLDER LINES COMMAND`. Prints how often it was refused.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import tollgate

FILE = "notes.md"


def from_python(name: str, folder: Path, line: str, command: str) -> bool:
    """Whether the line was added."""
    with tollgate.Workspace(folder).turn(agent=name) as turn:
        try:
            turn.write(FILE, turn.read(FILE).text + line)
        except (tollgate.StaleFile, tollgate.FileBusy):
            return False
    return True


def from_command_line(name: str, folder: Path, line: str, command: str) -> bool:
    def run(*arguments: str, text: str | None = None, turn: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TOLLGATE_TURN": turn}
        return subprocess.run(
            [command, "-C", folder, *arguments], input=text, capture_output=True, text=True, env=environment
        )

    turn = run("turn", "begin", "--agent", name).stdout.strip()
    text = run("read", FILE, turn=turn)
    assert text.returncode == 0, text
    wrote = run("--json", "write", FILE, text=text.stdout + line, turn=turn)
    run("turn", "end", turn=turn)
    if wrote.returncode == 1:
        assert json.loads(wrote.stdout)["error_type"] in ("STALE_FILE", "FILE_BUSY"), wrote
        return False
    assert wrote.returncode == 0, wrote
    return True


def from_hook(name: str, folder: Path, line: str, command: str) -> bool:
    """An agent program with tools of its own, which calls hooks around them."""

    def hook(event: str, tool: str, tool_input: dict[str, str], call: str) -> str:
        payload = {
            "session_id": name,
            "cwd": str(folder),
            "hook_event_name": event,
            "tool_name": tool,
            "tool_input": {"file_path": str(folder / FILE), **tool_input},
            "tool_use_id": call,
            "tool_response": {},
        }
        said = subprocess.run(
            [command, "hook", "claude-code"], input=json.dumps(payload), capture_output=True, text=True, cwd=folder
        )
        assert said.returncode == 0, said
        return said.stdout

    call = uuid.uuid4().hex
    assert not hook("PreToolUse", "Read", {}, f"r{call}")
    text = (folder / FILE).read_text()
    hook("PostToolUse", "Read", {}, f"r{call}")
    content = {"content": text + line}
    if refused := hook("PreToolUse", "Write", content, f"w{call}"):
        assert "STALE_FILE" in refused or "FILE_BUSY" in refused, refused
        return False
    (folder / FILE).write_text(text + line)
    hook("PostToolUse", "Write", content, f"w{call}")
    return True


DOORS: dict[str, Callable[[str, Path, str, str], bool]] = {
    "python": from_python,
    "command": from_command_line,
    "hook": from_hook,
}

if __name__ == "__main__":
    door, name, folder, lines, command = sys.argv[1:]
    refused = 0
    for number in range(int(lines)):
        while not DOORS[door](name, Path(folder), f"{name} {number}\n", command):
            refused += 1
    print(refused)
