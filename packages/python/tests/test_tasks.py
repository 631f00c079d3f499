"""The second promise from Python: one owner."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tollgate
from tollgate import Workspace


@pytest.fixture
def vault(folder):
    # Without the pause after a failed attempt, a task can be claimed again at once.
    (folder / ".tollgate").mkdir(exist_ok=True)
    (folder / ".tollgate/config.toml").write_text("[vault]\nretry = []\n")
    return Workspace(folder).vault(create=True)


def states(vault: tollgate.Vault) -> dict[str, str]:
    names = ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"]
    return {task["task"]: name for name in names for task in vault.list(name)}


def test_a_block_releases_with_success(workspace, vault, folder):
    vault.add("water", "# Water the plants\n")
    with vault.claim_next(agent="blue") as claim:
        assert (claim.task, claim.agent, claim.mode) == ("water.md", "blue", "execute")
        assert claim.path == str(folder / "vault/In_Progress/blue/water.md")
        assert claim.text().startswith("# Water the plants\n")
        assert claim.verify() and claim.lease_until is None
        claim.progress("half of them")
        with pytest.raises(tollgate.Denied) as caught:
            vault.claim("water", agent="red")
        assert caught.value.reason == "lost"
    assert claim.ended and states(vault) == {"water.md": "Done"}
    assert "half of them" in (folder / "vault/Done/water.md").read_text()
    with pytest.raises(tollgate.NotOwner):
        claim.progress("more")


def test_a_block_that_raises_releases_as_failed(vault, folder):
    vault.add("water", "x")
    with pytest.raises(ValueError, match="no water"), vault.claim_next(agent="blue"):
        raise ValueError("no water")
    assert states(vault) == {"water.md": "Needs_Action"}
    text = (folder / "vault/Needs_Action/water.md").read_text()
    assert "**Result**: failure" in text and "ValueError: no water" in text
    assert vault.get("water")["attempts"] == 1


def test_an_interrupt_gives_the_task_back_and_is_no_attempt(vault):
    vault.add("water", "x")
    with pytest.raises(KeyboardInterrupt), vault.claim_next(agent="blue"):
        raise KeyboardInterrupt
    assert vault.get("water")["attempts"] == 0
    with vault.claim_next(agent="red") as claim:
        assert claim.task == "water.md"


def test_nothing_to_claim_says_so(vault):
    with pytest.raises(tollgate.NothingToClaim) as caught:
        vault.claim_next(agent="blue")
    assert caught.value.payload["claimed"] is False and caught.value.reason == "none"


def test_a_workspace_without_a_vault_says_so(workspace):
    with pytest.raises(tollgate.Fault, match="tollgate init --vault"):
        workspace.vault()


def test_an_explicit_release_wins_over_the_block(vault):
    vault.add("water", "x")
    with vault.claim_next(agent="blue") as claim:
        claim.release("failure", to="Rejected", note="no plants")
    assert states(vault) == {"water.md": "Rejected"}


def test_a_claim_that_nobody_keeps_is_free_again(vault):
    vault.add("water", "x")
    claim = vault.claim_next(agent="blue")
    del claim
    with vault.claim_next(agent="red") as claim:
        assert claim.task == "water.md"


def test_a_lost_claim_fences_its_turn_until_the_agent_knows(workspace, vault, folder):
    vault.add("water", "x")
    claim = vault.claim_next(agent="blue", tenure="leased")
    assert claim.lease_until is not None
    turn = claim.turn()
    turn.write("f", "mine")
    # A person moves the task back by hand, and another agent gets it.
    os.rename(claim.path, folder / "vault/Needs_Action/water.md")
    other = vault.claim("water", agent="red")
    with pytest.raises(tollgate.Fenced) as caught:
        turn.write("f", "too late")
    assert caught.value.payload["resolution"] == "STOP_WORK"
    assert (folder / "f").read_text() == "mine"
    assert claim.verify() is False
    turn.write("f", "other work")
    other.release()


def test_a_claim_of_the_environment_fences_every_turn(workspace, vault, folder, monkeypatch):
    vault.add("water", "x")
    claim = vault.claim_next(agent="blue", tenure="leased")
    monkeypatch.setenv("TOLLGATE_TASK_ID", claim.task)
    monkeypatch.setenv("TOLLGATE_CLAIM_ID", claim.claim_id)
    workspace.turn(agent="blue").write("f", "mine")
    claim.release()
    with pytest.raises(tollgate.Fenced):
        workspace.turn(agent="blue").write("f", "too late")


def test_an_agent_may_not_write_the_tasks_of_others(workspace, vault, folder):
    vault.add("water", "x")
    claim = vault.claim_next(agent="blue")
    with pytest.raises(tollgate.ProtectedPath):
        workspace.turn(agent="red").write(claim.path, "mine")
    turn = claim.turn()
    turn.write(claim.path, turn.read(claim.path).text + "a note\n")
    claim.release()


CLAIM_AND_WAIT = """
import sys, tollgate
claim = tollgate.Workspace(sys.argv[1]).vault().claim_next(agent="blue")
print("claimed", flush=True)
sys.stdin.read()
"""


def test_the_task_of_a_killed_process_is_free_at_once(vault, folder):
    vault.add("water", "x")
    owner = subprocess.Popen(
        [sys.executable, "-c", CLAIM_AND_WAIT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout.readline() == "claimed\n"
    with pytest.raises(tollgate.Denied):
        vault.claim("water", agent="red")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with vault.claim("water", agent="red") as claim:
        assert claim.agent == "red"


def test_a_held_claim_over_git_sends_heartbeats(folder, tmp_path):
    """Each heartbeat is a push, so that a ref of the remote changes."""
    environment = {
        **os.environ,
        **{f"GIT_{who}_{what}": "blue" for who in ["AUTHOR", "COMMITTER"] for what in ["NAME", "EMAIL"]},
    }

    def git(*arguments: str) -> str:
        said = subprocess.run(
            ["git", "-C", folder, *arguments], check=True, capture_output=True, text=True, env=environment
        )
        return said.stdout

    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", remote], check=True)
    git("init", "--quiet", "--initial-branch=main")
    git("remote", "add", "origin", str(remote))
    git("commit", "--quiet", "--allow-empty", "--message=start")
    git("push", "--quiet", "--set-upstream", "origin", "main")
    (folder / ".tollgate").mkdir()
    (folder / ".tollgate/config.toml").write_text('[vault]\nsync = "git"\nlease = "3s"\n')
    vault = Workspace(folder).vault(create=True)
    vault.add("water", "x")
    with vault.claim_next(agent="blue") as claim:
        first = git("ls-remote", "origin")
        deadline = time.monotonic() + 60
        while git("ls-remote", "origin") == first:
            assert time.monotonic() < deadline, "no heartbeat"
        assert claim.verify()
    assert states(vault) == {"water.md": "Done"}
