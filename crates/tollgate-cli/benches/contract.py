"""The claim-by-move contract's claim loop, written out plainly: its functions and its log, without its sleeps.

One worker: claims and releases until Needs_Action is empty, then prints how many it did.
"""

import logging
import os
import sys
from datetime import datetime, timezone

VAULT, AGENT_NAME = sys.argv[1], sys.argv[2]
logging.basicConfig(
    filename=os.path.join(VAULT, f"agent-{AGENT_NAME}.log"), level=logging.INFO, format="%(asctime)s %(message)s"
)


def now():
    return datetime.now(timezone.utc).isoformat()


def add_claim_metadata(path, agent_name):
    task_id = os.path.basename(path)[:-3]
    with open(path, "a") as f:
        f.write(
            f"\n# Claimed Task: {task_id}\n\n**Claimed By**: {agent_name}\n**Claimed At**: {now()}\n"
            "**Status**: processing\n\n## Progress\n\n<!-- Agent adds progress notes here -->\n"
        )


def update_metadata(path, next_state):
    with open(path, "a") as f:
        f.write(
            f"\n## Completion\n\n**Completed At**: {now()}\n**Duration**: 0\n"
            f"**Result**: success\n**Next State**: {next_state}\n"
        )


def claim_task(task_file, agent_name):
    source_path = os.path.join(VAULT, "Needs_Action", task_file)
    target_dir = os.path.join(VAULT, "In_Progress", agent_name)
    target_path = os.path.join(target_dir, task_file)
    os.makedirs(target_dir, exist_ok=True)
    try:
        os.rename(source_path, target_path)
        add_claim_metadata(target_path, agent_name)
        return True
    except FileNotFoundError:
        return False


def verify_claim(task_file):
    return os.path.exists(os.path.join(VAULT, "In_Progress", AGENT_NAME, task_file))


def release_task(task_file, agent_name, next_state):
    source_path = os.path.join(VAULT, "In_Progress", agent_name, task_file)
    target_dir = os.path.join(VAULT, next_state)
    target_path = os.path.join(target_dir, task_file)
    os.makedirs(target_dir, exist_ok=True)
    os.rename(source_path, target_path)
    update_metadata(target_path, next_state)
    return True


done = 0
while True:
    tasks = os.listdir(os.path.join(VAULT, "Needs_Action"))
    if not tasks:
        break
    for task_file in tasks:
        if task_file.endswith(".md"):
            if claim_task(task_file, AGENT_NAME):
                logging.info("Claimed: %s", task_file)
                if verify_claim(task_file):
                    release_task(task_file, AGENT_NAME, "Done")
                    done += 1
print(done)
