"""Eight agents, four doors, one file: nothing lost, nothing twice."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

LINES = int(os.environ.get("TOLLGATE_RACE_LINES", "200"))
HERE = Path(__file__).parent
# The folder in which the npm package is installed.
NODE = os.environ["TOLLGATE_NODE_FOLDER"]


def test_eight_agents_behind_four_doors_add_200_lines_each(folder: Path) -> None:
    (folder / ".tollgate").mkdir()
    (folder / ".tollgate/config.toml").write_text('[guard]\ndurability = "fast"\n')
    (folder / "notes.md").write_text("")
    command = str(Path(sys.executable).parent / "tollgate")
    racers = []
    for door in ["python", "node", "hook", "command"]:
        for number in range(2):
            name = f"{door}-{number}"
            program = ["node", f"{NODE}/test/racer.mjs"] if door == "node" else [sys.executable, f"{HERE}/racer.py", door]
            arguments = [*program, name, str(folder), str(LINES), command]
            # A program that is hooked reads and writes by itself; without the claim of a test around it.
            racers.append((name, subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)))
    refused = {}
    for name, racer in racers:
        said, _ = racer.communicate()
        assert racer.returncode == 0, name
        refused[name] = int(said)
    print(refused)
    assert sum(refused.values()) > 0, "nobody was in anybody's way"
    found = Counter((folder / "notes.md").read_text().splitlines())
    wanted = {f"{name} {number}" for name in refused for number in range(LINES)}
    assert set(found) == wanted
    assert max(found.values()) == 1
    subprocess.run([command, "-C", folder, "ledger", "verify"], check=True)
