"""The stage of `make-old-state`: workspaces, and commands that are stopped or killed at a chosen system call."""

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

PATIENCE_S = 30
LONG, SHORT = "36500d", "1ms"

CONFIG = """\
version = 1

[guard]
durability = "durable"

[recovery]
max_age = "36500d"

[vault]
{vault}durability = "durable"
lease = "{lease}"
max_attempts = 3

[agent.cloud]
role = "cloud"
allowed = ["summarize"]
sensitive = ["payment", "send_email"]

[agent.local]
role = "local"
allowed = ["payment", "send_email", "summarize"]

[log]
dir = "log"
"""


def until(what, there):
    """Waits for something that must come."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := there()):
        if time.monotonic() > deadline:
            sys.exit(f"waited for {what} in vain")
        time.sleep(0.01)
    return found


def stripe(task):
    """The stripe of a task: the number of its lock, and the name of its log."""
    return zlib.crc32(task.encode()) & 0xFF


class Stage:
    """The folder that everything is in, the binary, and every process that must not outlive the script."""

    def __init__(self, binary, top):
        self.binary, self.top, self.started = Path(binary).resolve(), Path(top).resolve(), []
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.top / "home"),
            "USER": "ada",
            "XDG_RUNTIME_DIR": str(self.top / "run"),
            "XDG_STATE_HOME": str(self.top / "state"),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
        }
        self.top.mkdir(parents=True)
        for folder in ["home", "run", "state"]:
            (self.top / folder).mkdir(mode=0o700)

    def start(self, words, folder, **more):
        process = subprocess.Popen(words, cwd=folder, env=self.environment, stderr=subprocess.DEVNULL, **more)
        self.started.append(process)
        return process

    def scratch(self, kind):
        """A file that is removed at the end."""
        return self.top / f"scratch-{kind}-{len(self.started)}"

    def heads(self):
        """The ledgers that were ever written to, each by the id of its workspace."""
        folder = self.top / "state/tollgate/heads"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def clear(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()


class Stopped:
    """A command that `strace` has stopped right after a system call. It holds all its locks."""

    def __init__(self, strace):
        children = Path(f"/proc/{strace.pid}/task/{strace.pid}/children").read_text().split()
        self.strace, self.pid = strace, int(children[0])

    def goes_on(self):
        """Lets it go on to its end. Returns its answer."""
        os.kill(self.pid, signal.SIGCONT)
        self.strace.wait(PATIENCE_S)
        return json.loads(self.strace.stdout.read())

    def dies(self):
        if self.strace.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.strace.wait(PATIENCE_S)


class Worker:
    """A worker that holds some tasks. It is stopped, so it does nothing else."""

    def __init__(self, process, commands):
        self.process, self.commands = process, commands

    def dies(self):
        self.process.kill()
        self.process.wait()
        for pid in self.commands:
            status = Path(f"/proc/{pid}/stat")
            # A zombie is dead, too.
            until("a worker's command to die", lambda: not status.exists() or ") Z " in status.read_text())


class Workspace:
    """A workspace, and what a reader of the fixture must know of its tasks."""

    def __init__(self, stage, name, vault=""):
        self.stage, self.root, self.vault_settings = stage, stage.top / name, vault
        self.vault, self.tasks, self.at_work = self.root / "vault", {}, []

    def lease(self, lease):
        """Every claim from here on has this lease."""
        state = self.root / ".tollgate"
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        (state / "config.toml").write_text(CONFIG.format(vault=self.vault_settings, lease=lease))

    def run(self, *words, stdin="", code=0):
        ran = subprocess.run(
            [self.stage.binary, *words, "--json"],
            cwd=self.root,
            env=self.stage.environment,
            input=stdin.encode(),
            capture_output=True,
        )
        if ran.returncode != code:
            sys.exit(f"{words} ended with {ran.returncode}, not {code}:\n{ran.stdout.decode()}{ran.stderr.decode()}")
        return json.loads(ran.stdout) if ran.stdout else None

    def _strace(self, words, call, fate, path, stdin):
        log = self.stage.scratch("strace")
        only = ["-P", str(path)] if path else []
        strace = ["strace", "-qq", "-s", "65536", "-o", str(log), f"--trace={call}", *only, f"--inject={call}:{fate}"]
        words = [*strace, "--", self.stage.binary, *words, "--json"]
        process = self.stage.start(words, self.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write(stdin.encode())
        process.stdin.close()
        return process, log

    def stops(self, *words, after, path=None, nth=1, stdin=""):
        """Starts a command and stops it right after its nth call of this kind (on this path)."""
        process, log = self._strace(words, after, f"signal=STOP:when={nth}", path, stdin)
        stopped = lambda: log.exists() and "--- stopped by SIGSTOP ---" in log.read_text()
        until(f"{words} to stop after {after}", stopped)
        self.at_work.append(Stopped(process))
        return self.at_work[-1]

    def dies(self, *words, before, path, stdin=""):
        """Kills a command right before its first call of this kind on this path. Returns what strace saw of the call."""
        process, log = self._strace(words, before, "signal=KILL:when=1", path, stdin)
        process.wait(PATIENCE_S)
        if process.returncode != -signal.SIGKILL:
            sys.exit(f"{words} was not killed before {before}:\n{log.read_text()}")
        return log.read_text()

    def works(self, agent, *tasks):
        """Starts a worker that claims as many tasks and keeps them. There must be no others to claim."""
        began = self.stage.scratch("began")
        script = f'echo "$TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID $$" >> {began}; exec sleep 1000'
        words = ["work", "--agent", agent, "--jobs", str(len(tasks)), "--", "sh", "-c", script]
        process = self.stage.start([self.stage.binary, *words], self.root, stdout=subprocess.DEVNULL)
        lines = lambda: began.read_text().splitlines() if began.exists() else []
        until("the worker's commands", lambda: len(lines()) == len(tasks))
        process.send_signal(signal.SIGSTOP)
        held = [line.split() for line in lines()]
        for task, claim_id, _ in held:
            epoch = self.run("task", "show", task)["epoch"]
            self.knows(task.removesuffix(".md"), claim_id=claim_id, epoch=epoch, agent=agent)
        assert {task.removesuffix(".md") for task, _, _ in held} == set(tasks), held
        return Worker(process, [int(pid) for _, _, pid in held])

    def folders(self):
        """Where the folders of the states are."""
        return self.vault

    def private(self, *names):
        return self.folders().joinpath(".tollgate/vault", *names)

    def log(self, task):
        return self.private("log", f"{stripe(task):02x}")

    def knows(self, task, **facts):
        self.tasks.setdefault(f"{task}.md", {}).update(facts)

    def add(self, task, *words):
        added = self.run("task", "add", f"What {task} is about", "--name", f"{task}.md", *words)
        self.knows(task, author=(self.folders() / added["state"] / f"{task}.md").read_text())

    def put(self, state, task, text):
        """A person writes a file."""
        path = self.folders() / state / f"{task}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        self.knows(task, author=text)

    def move(self, task, old, new):
        """A person moves a file."""
        (self.folders() / old / f"{task}.md").rename(self.folders() / new / f"{task}.md")

    def claim(self, task, agent):
        claim = self.run("task", "claim", task, "--agent", agent)
        self.knows(task, claim_id=claim["claim_id"], epoch=claim["epoch"], agent=agent)
        return claim["claim_id"]

    def release(self, task, claim_id, *words):
        return self.run("task", "release", task, "--claim-id", claim_id, *words)

    def draft(self, task):
        """A draft that waits for approval."""
        self.add(task, "--action", "payment")
        self.release(task, self.claim(task, "cloud"), "--note", f"the draft of {task}")

    def ends(self):
        """Kills everything that was stopped."""
        for stopped in self.at_work:
            stopped.dies()

    def manifest(self, **more):
        ledger = self.root / ".tollgate/ledger.jsonl"
        whole = ledger.read_bytes().count(b"\n") if ledger.exists() else 0
        return {"tasks": dict(sorted(self.tasks.items())), "whole_lines": whole, **more}
