"""The first promise from Python: no lost update."""

import errno
import hashlib
import importlib.metadata
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tollgate
from tollgate import Workspace


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def ledger(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / ".tollgate/ledger.jsonl").read_text().splitlines()]


def test_an_agent_writes_what_it_has_read(workspace, folder):
    (folder / "notes.md").write_text("one\n")
    with workspace.turn(agent="blue") as turn:
        read = turn.read("notes.md")
        assert (read.text, read.bytes, read.size) == ("one\n", b"one\n", 4)
        assert read.sha256 == sha256("one\n")
        applied = turn.write("notes.md", read.text + "two\n")
    assert (folder / "notes.md").read_text() == "one\ntwo\n"
    assert (applied["hash_before"], applied["hash_after"]) == (sha256("one\n"), sha256("one\ntwo\n"))
    assert [line["action_type"] for line in ledger(folder)] == ["TURN_STARTED", "MUTATION", "TURN_ENDED"]
    assert {line["agent"] for line in ledger(folder)} == {"blue"}


def test_unfinished_work_that_the_agent_has_not_read_stays(folder):
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *words], cwd=folder, check=True)

    (folder / ".tollgate").mkdir()
    (folder / ".tollgate/config.toml").write_text('[guard]\nunfinished = "refuse"\n')
    (folder / "notes.md").write_text("one\n")
    git("init", "-q")
    git("add", "notes.md")
    git("commit", "-q", "-m", "one")
    (folder / "notes.md").write_text("unfinished\n")
    turn = Workspace(folder).turn(agent="blue")
    for change in [
        lambda: turn.write("notes.md", "mine\n"),
        lambda: turn.delete("notes.md"),
        lambda: turn.move_file("notes.md", "moved.md"),
    ]:
        with pytest.raises(tollgate.StaleFile) as caught:
            change()
        assert caught.value.payload == {
            "error_type": "STALE_FILE",
            "file_path": str(folder / "notes.md"),
            "expected_hash": sha256("one\n"),
            "actual_hash": sha256("unfinished\n"),
            "resolution": "RE_READ_REQUIRED",
        }
        assert (folder / "notes.md").read_text() == "unfinished\n"
    turn.write("notes.md", turn.read("notes.md").text + "mine\n")
    assert (folder / "notes.md").read_text() == "unfinished\nmine\n"


def test_a_stale_write_raises_the_payload_and_changes_nothing(workspace, folder):
    (folder / "notes.md").write_text("one\n")
    turn = workspace.turn(agent="blue")
    turn.read("notes.md")
    (folder / "notes.md").write_text("two\n")
    with pytest.raises(tollgate.StaleFile) as caught:
        turn.write("notes.md", "mine\n")
    assert caught.value.payload == {
        "error_type": "STALE_FILE",
        "file_path": str(folder / "notes.md"),
        "expected_hash": sha256("one\n"),
        "actual_hash": sha256("two\n"),
        "resolution": "RE_READ_REQUIRED",
    }
    assert caught.value.report["details"]["current_disk_hash"] == sha256("two\n")
    assert isinstance(caught.value, tollgate.Refused)
    assert (folder / "notes.md").read_text() == "two\n"
    assert [line["action_type"] for line in ledger(folder)][-1] == "MUTATION_CONFLICT"
    turn.write("notes.md", turn.read("notes.md").text + "mine\n")
    assert (folder / "notes.md").read_text() == "two\nmine\n"


def test_a_refused_write_can_be_merged(workspace, folder):
    lines = [f"line {number}\n" for number in range(20)]
    (folder / "f").write_text("".join(lines))
    turn = workspace.turn(agent="blue")
    turn.read("f")
    (folder / "f").write_text("".join(["theirs\n", *lines[1:]]))
    with pytest.raises(tollgate.StaleFile):
        turn.write("f", "".join([*lines[:-1], "mine\n"]))
    merge = turn.merge("f")
    assert merge["clean"]
    turn.write("f", merge["content"])
    assert (folder / "f").read_text() == "".join(["theirs\n", *lines[1:-1], "mine\n"])


def test_each_refusal_has_its_own_exception(workspace, folder):
    (folder / "f").write_text("a a")
    (folder / "linked").write_text("x")
    os.link(folder / "linked", folder / "other")
    (folder / "d").mkdir()
    turn = workspace.turn(agent="blue")
    for exception, call in [
        (tollgate.TextNotFound, lambda: turn.edit("f", "a", "b")),
        (tollgate.OutsideWorkspace, lambda: turn.write("../f", "x")),
        (tollgate.ProtectedPath, lambda: turn.write(".git/hooks/x", "x")),
        (tollgate.ProtectedPath, lambda: turn.write(".claude/settings.json", "x")),
        (tollgate.NotAFile, lambda: turn.read("d")),
        (tollgate.HardLinked, lambda: turn.write("linked", "y")),
        (tollgate.StaleFile, lambda: turn.write("f", "x", expected_hash="0" * 64)),
        (tollgate.StaleFile, lambda: turn.write("f", "x", expected_hash="absent")),
        (tollgate.StaleFile, lambda: turn.create("f", "x")),
        (tollgate.NotFound, lambda: turn.read("missing")),
        (FileNotFoundError, lambda: turn.read("missing")),
        (tollgate.Fault, lambda: workspace.turn(agent="no/name")),
    ]:
        with pytest.raises(exception) as caught:
            call()
        assert type(caught.value) is exception or exception is FileNotFoundError, caught.value
    assert (folder / "f").read_text() == "a a"
    with pytest.raises(tollgate.NotFound) as missing:
        turn.read("missing")
    assert missing.value.errno == errno.ENOENT
    for error in [missing.value, caught.value]:
        assert pickle.loads(pickle.dumps(error)).payload == error.payload


def test_the_users_own_state_is_protected(folder, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "own"))
    turn = Workspace(folder).turn(agent="blue")
    with pytest.raises(tollgate.ProtectedPath):
        turn.write("own/tollgate/trusted/x", "x")
    turn.write("own/other/x", "x")


def test_lines_edits_moves_deletions_and_atomic_changes(workspace, folder):
    (folder / "f").write_text("1\n2\n3\n2\n")
    turn = workspace.turn(agent="blue")
    assert turn.read("f", lines=(2, 3)).text == "2\n3\n"
    assert turn.read(Path("f"), lines=(4, None)).text == "2\n"
    turn.edit("f", "2", "two", all=True)
    assert turn.read("f").text == "1\ntwo\n3\ntwo\n"
    assert turn.initial_hash("f") == sha256("1\n2\n3\n2\n")
    turn.move_file("f", "g")
    turn.create("h", b"\xff\x00")
    assert turn.read("h").bytes == b"\xff\x00"
    with pytest.raises(UnicodeDecodeError):
        turn.read("h").text
    applied = turn.apply(
        [
            {"path": "g", "edits": [{"oldText": "1", "newText": "one"}]},
            {"path": "h", "delete": True},
            {"path": "i", "content": "new"},
        ]
    )
    assert len(applied) == 3 and not (folder / "h").exists()
    with pytest.raises(tollgate.StaleFile):
        turn.apply([{"path": "i", "content": "x"}, {"path": "g", "content": "x", "expected_hash": None}])
    assert (folder / "i").read_text() == "new"
    turn.delete("i")
    assert sorted(path.name for path in folder.iterdir()) == [".tollgate", "g"]


def test_an_ended_turn_answers_nothing_more(workspace, folder):
    with workspace.turn(agent="blue") as turn:
        turn.write("f", "x")
    turn.end()
    with pytest.raises(tollgate.Fault, match="has ended"):
        turn.write("f", "y")
    with pytest.raises(ZeroDivisionError), workspace.turn(agent="blue") as turn:
        raise ZeroDivisionError
    assert [line["action_type"] for line in ledger(folder)].count("TURN_ENDED") == 2


def test_what_an_agent_knows_lasts_beyond_a_turn(folder):
    (folder / ".tollgate").mkdir()
    (folder / ".tollgate/config.toml").write_text('[guard]\nunread = "known"\n')
    (folder / "f").write_text("one")
    workspace = Workspace(folder)
    with workspace.turn(agent="blue") as turn:
        turn.read("f")
    (folder / "f").write_text("two")
    with workspace.turn(agent="blue") as turn, pytest.raises(tollgate.StaleFile):
        turn.write("f", "mine")


def test_the_environment_names_the_agent(workspace, monkeypatch):
    with pytest.raises(tollgate.Fault, match="TOLLGATE_AGENT"):
        workspace.turn()
    monkeypatch.setenv("TOLLGATE_AGENT", "green")
    assert workspace.turn().agent == "green"


def test_other_threads_run_while_a_call_waits(workspace, folder):
    """A reader of a pipe that nobody writes to would hold the lock for ever. A file lock is what a call can wait for here."""
    import fcntl

    (folder / "f").write_text("x")
    turn = workspace.turn(agent="blue")
    turn.read("f")
    locks = [open(path, "rb+") for path in sorted((folder / ".tollgate/locks").iterdir())]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    waiting = threading.Thread(target=lambda: turn.write("f", "y"))
    waiting.start()
    # With the interpreter's lock held by the call, this thread could not release the file locks, and the call would fail.
    for lock in locks:
        lock.close()
    waiting.join()
    assert (folder / "f").read_text() == "y"


def test_threads_of_one_turn_wait_for_each_other(workspace, folder):
    (folder / "f").write_text("")
    turn = workspace.turn(agent="blue")
    threads = [threading.Thread(target=lambda n=n: turn.write(f"f{n}", str(n))) for n in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [(folder / f"f{n}").read_text() for n in range(8)] == [str(n) for n in range(8)]


def test_objects_do_not_work_after_a_fork(workspace, folder):
    """Parent and child have the same open files, so a lock on them would exclude neither."""
    turn, vault = workspace.turn(agent="blue"), workspace.vault(create=True)
    vault.add("water", "x")
    claim = vault.claim_next(agent="blue")
    child = os.fork()
    if child == 0:
        failed = 0
        for call in [lambda: turn.write("f", "x"), vault.list, lambda: vault.claim_next("red"), claim.verify, claim.release, turn.end]:
            try:
                call()
            except tollgate.Fault as fault:
                failed += "before a fork" in str(fault)
        workspace.turn(agent="red").write("g", "x")
        del turn
        os._exit(0 if failed == 6 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    turn.write("f", "y")
    claim.release()
    assert [line["action_type"] for line in ledger(folder) if line["turn"] == turn.id] == ["TURN_STARTED", "MUTATION"]


def test_a_turn_that_nobody_keeps_ends(workspace, folder):
    turn = workspace.turn(agent="blue")
    del turn
    assert [line["action_type"] for line in ledger(folder)] == ["TURN_STARTED", "TURN_ENDED"]


def test_history_and_blame_say_who_did_what_after_reading_what(workspace, folder):
    (folder / "notes.md").write_text("theirs\n")
    with workspace.turn(agent="blue") as turn:
        turn.write("notes.md", turn.read("notes.md").text + "blue\n")
        turn.move_file("notes.md", "moved.md")
    with workspace.turn(agent="red") as turn:
        turn.create("other.md", "red\n")
    changes = workspace.history("moved.md")
    assert [(change["via"], change["paths"], change["agent"]) for change in changes] == [
        ("move_file", ["moved.md"], "blue"),
        ("write_file", ["notes.md"], "blue"),
    ]
    assert (changes[1]["added"], changes[1]["removed"]) == (1, 0)
    assert [change["agent"] for change in workspace.history(limit=1)] == ["red"]
    assert workspace.history(agent="red", since="2026-01-01T00:00:00Z") == workspace.history(limit=1)
    assert workspace.history(since="2999-01-01T00:00:00Z") == []
    lines = workspace.blame("moved.md", why=True)
    assert [(line["text"], line["by"], line["agent"]) for line in lines] == [("theirs", "before", None), ("blue", "agent", "blue")]
    assert lines[1]["seq"] == changes[1]["seq"]
    assert [(read["path"], read["hash"]) for read in lines[1]["reads"]] == [("notes.md", sha256("theirs\n"))]
    assert "reads" not in workspace.blame("moved.md")[1]
    for call in [
        lambda: workspace.blame("../outside"),
        lambda: workspace.blame(".tollgate/ledger.jsonl"),
        lambda: workspace.history(".tollgate/ledger.jsonl"),
    ]:
        with pytest.raises(tollgate.Refused):
            call()
    with pytest.raises(tollgate.Fault, match="yesterday"):
        workspace.history(since="yesterday")


def test_the_command_is_in_the_wheel(folder):
    command = Path(sys.executable).parent / "tollgate"
    assert command.read_bytes()[:4] == b"\x7fELF"
    said = subprocess.run([command, "-C", folder, "--json", "status"], capture_output=True, text=True)
    assert json.loads(said.stdout)
    version = subprocess.run([command, "--version"], capture_output=True, check=True, text=True).stdout
    assert version == f"tollgate {importlib.metadata.version('tollgate-guard')}\n"


def test_the_command_sees_what_python_wrote(workspace, folder):
    with workspace.turn(agent="blue") as turn:
        turn.write("f", "x")
    command = Path(sys.executable).parent / "tollgate"
    subprocess.run([command, "-C", folder, "ledger", "verify"], check=True, capture_output=True)


def test_state_of_another_user_is_refused(folder):
    if os.geteuid() != 0:
        pytest.fail("this test runs as root, which may give a folder to another user")
    (folder / ".tollgate").mkdir()
    os.chown(folder / ".tollgate", 12345, 12345)
    with pytest.raises(tollgate.Fault, match="belongs to another user"):
        Workspace(folder)
