"""The claim-by-move contract's loop with git, written out plainly: its functions and its order, without its sleeps.

One worker in one clone: pull, claim and process everything, add, commit, push; when the push is refused, pull again. Ends
when nothing waits and everything is pushed. All workers meet after their first pull, as in the contract's own race.
"""

import os
import subprocess
import sys
import time

CLONE, AGENT_NAME, WITNESS, WORKERS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
VAULT = os.path.join(CLONE, "vault")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=CLONE, capture_output=True).returncode == 0


def claim_task(task_file, agent_name):
    source_path = os.path.join(VAULT, "Needs_Action", task_file)
    target_dir = os.path.join(VAULT, "In_Progress", agent_name)
    target_path = os.path.join(target_dir, task_file)
    os.makedirs(target_dir, exist_ok=True)
    try:
        os.rename(source_path, target_path)
    except FileNotFoundError:
        return False
    with open(target_path, "a") as f:
        f.write(f"\n# Claimed Task: {task_file[:-3]}\n\n**Claimed By**: {agent_name}\n**Status**: processing\n")
    return True


def process_task(task_file):
    with open(WITNESS, "a") as f:
        f.write(f"{task_file} {AGENT_NAME}\n")
    source_path = os.path.join(VAULT, "In_Progress", AGENT_NAME, task_file)
    target_dir = os.path.join(VAULT, "Done")
    os.makedirs(target_dir, exist_ok=True)
    os.rename(source_path, os.path.join(target_dir, task_file))
    with open(os.path.join(target_dir, task_file), "a") as f:
        f.write("\n## Completion\n\n**Result**: success\n**Next State**: Done\n")


first = True
for _ in range(50):
    if not git("pull", "--no-rebase", "--no-edit", "origin", "main"):
        # A conflict: the contract says to pull again. Taken to the letter, it never ends; so take one side.
        git("checkout", "--ours", ".")
        git("add", "-A")
        git("commit", "-m", "merge")
    if first:
        open(f"{WITNESS}-{AGENT_NAME}", "w").close()
        while sum(os.path.basename(WITNESS) + "-" in name for name in os.listdir(os.path.dirname(WITNESS))) < WORKERS:
            time.sleep(0.001)
        first = False
    folder = os.path.join(VAULT, "Needs_Action")
    tasks = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for task_file in tasks:
        if task_file.endswith(".md") and claim_task(task_file, AGENT_NAME):
            process_task(task_file)
    git("add", "-A")
    git("commit", "-m", f"Agent {AGENT_NAME} updates")
    if git("push", "origin", "HEAD:main"):
        break
