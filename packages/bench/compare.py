"""What the packages cost, as ratios: a guarded write against the same from Rust, a promise of Node.js itself against its synchronous
call, and an import against the start of Python.

`compare.py RUST_WRITER NODE_WRITER`, with a Python that has the package. Samples alternate, so that a busy machine is busy for
all sides, and medians are compared.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

SAMPLES = 300
STARTS = 60

rust, node = sys.argv[1:]
# Each side: its name, its command, and the side that it is compared with.
GUARDED = [
    ("from Rust", [rust], None),
    ("from Python", [sys.executable, str(Path(__file__).with_name("writer.py"))], "from Rust"),
    ("from Node.js with `writeSync`", ["node", node, "writeSync"], "from Rust"),
    ("from Node.js with `write`", ["node", node, "write"], "from Rust"),
]
BARE = [
    ("`fs.writeFileSync` of 4 KiB", ["node", node, "writeFileSync"], None),
    ("`fs.promises.writeFile` of 4 KiB", ["node", node, "writeFile"], "`fs.writeFileSync` of 4 KiB"),
]


def compare(durability: str, sides: list[tuple[str, list[str], str | None]]) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        (Path(folder) / ".tollgate").mkdir()
        (Path(folder) / ".tollgate/config.toml").write_text(f'[guard]\ndurability = "{durability}"\n')
        writers = {
            name: subprocess.Popen([*command, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for name, command, _ in sides
        }
        times: dict[str, list[int]] = {name: [] for name in writers}
        for _ in range(SAMPLES):
            for name, writer in writers.items():
                assert writer.stdin and writer.stdout
                writer.stdin.write("\n")
                writer.stdin.flush()
                times[name].append(int(writer.stdout.readline()))
        for writer in writers.values():
            writer.communicate()
    for name, _, other in sides:
        what = f"{durability} write of 4 KiB {name}" if name.startswith("from") else name
        ratio = f"{median(times[name]) / median(times[other]):.2f}" if other else ""
        aim = "1.2" if other == "from Rust" and durability == "durable" else ""
        print(f"| {what} | {median(times[name]) / 1000:.0f} µs | {ratio} | {aim} |")


print("| what | median | ratio | aim |\n|---|---|---|---|")
compare("durable", GUARDED)
compare("fast", GUARDED + BARE)


def start(code: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return perf_counter() - began


pairs = [(start("pass"), start("import tollgate")) for _ in range(STARTS)]
bare, imported = (median(one) for one in zip(*pairs))
print(f"| start of Python | {bare * 1000:.1f} ms | | |")
print(f"| `import tollgate` | {(imported - bare) * 1000:.1f} ms | {(imported - bare) / bare:.2f} | 0.5 |")
