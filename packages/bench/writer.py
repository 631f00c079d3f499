"""One side of a comparison: for each line on stdin, one guarded write of 4 KiB, and its time in nanoseconds on stdout."""

import sys
from time import perf_counter_ns

import tollgate

turn = tollgate.Workspace(sys.argv[1]).turn(agent="python")
for number, _ in enumerate(sys.stdin):
    content = f"{number:4096}".encode()
    start = perf_counter_ns()
    turn.write("python", content)
    print(perf_counter_ns() - start, flush=True)
