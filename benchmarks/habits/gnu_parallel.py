"""1,000 times `true`: `sparrow run` beside GNU parallel and `xargs -P`, as many at once as there are cores.

Each run starts and ends all that it needs, `sparrow run` its cluster, too. Each tool has run once before, so that its
files are read and its modules compiled. The tools take turns, and each round begins with another. CPU time is that of
all processes of a run. A ratio is the median of those within a round.
`value` is the CPU time of `sparrow run` over that of GNU parallel; it was aimed at 0.5.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys

from benchmarks.habits.process_times import Times, timed
from benchmarks.report import Report, Row, command, progress

COMMANDS = 1000
OURS, PARALLEL, XARGS = "sparrow run", "parallel", "xargs -P"
AIM = 0.5
PACKAGES = {PARALLEL: "parallel", XARGS: "findutils"}
Round = dict[str, Times]


def argv_of(tool: str, at_once: int) -> list[str]:
    """The command line that runs `true` for each line of its input."""
    return {
        OURS: [sys.executable, "-m", "frontends.cli", "run", "-j", str(at_once), "--", "true"],
        PARALLEL: ["parallel", "--will-cite", "-j", str(at_once), "true"],
        XARGS: ["xargs", "-P", str(at_once), "-n", "1", "true"],
    }[tool]


def usable(tools: dict[str, str]) -> tuple[list[str], list[str]]:
    """Of these tools, with the packages they come with, those that are installed; and a note on each that is not."""
    there, notes = [], []
    for tool, package in tools.items():
        program = argv_of(tool, 1)[0]
        if shutil.which(program) is None:
            notes.append(f"{tool} is left out: no {program} is installed (package {package}).")
        else:
            there.append(tool)
    return there, notes


def measure_round(tools: list[str], number: int, at_once: int) -> Round:
    """Each tool once; the order changes with the number of the round."""
    first = number % len(tools)
    return {tool: timed(argv_of(tool, at_once), lines(COMMANDS)) for tool in tools[first:] + tools[:first]}


def lines(count: int) -> bytes:
    """So many lines of input."""
    return b"".join(b"%d\n" % number for number in range(count))


def row(tool: str, rounds: list[Round], base: str | None) -> Row:
    """The medians of a tool, and its ratios to the `base`."""
    cells: Row = {
        "tool": tool,
        "wall s": statistics.median(one[tool].wall_s for one in rounds),
        "CPU s": statistics.median(one[tool].cpu_s for one in rounds),
        "CPU ms per command": 1000 * statistics.median(one[tool].cpu_s for one in rounds) / COMMANDS,
    }
    if base is not None:
        cells[f"wall / {base}"] = statistics.median(one[tool].wall_s / one[base].wall_s for one in rounds)
        cells[f"CPU / {base}"] = statistics.median(one[tool].cpu_s / one[base].cpu_s for one in rounds)
    return cells


def measure(repeat: int) -> Report:
    """All tools that are installed, `repeat` times in turn."""
    at_once = os.cpu_count() or 1
    others, notes = usable(PACKAGES)
    tools = [OURS, *others]
    for tool in tools:
        timed(argv_of(tool, at_once), lines(1))
    rounds = []
    for number in range(repeat):
        rounds.append(measure_round(tools, number, at_once))
        progress(f"round {number + 1} of {repeat}")
    base = PARALLEL if PARALLEL in tools else None
    rows = [row(tool, rounds, base) for tool in tools]
    return Report(
        "habits_parallel",
        rows[0][f"CPU / {base}"] if base else rows[0]["CPU s"],
        f"of the CPU time of GNU parallel (aim: {AIM})" if base else "s of CPU time; GNU parallel is not installed",
        {f"{COMMANDS:,} × true, {at_once} at once": rows},
        [{tool: times._asdict() for tool, times in one.items()} for one in rounds],
        notes,
        {"commands": COMMANDS, "at_once": at_once},
    )


main = command("parallel", measure, repeat=5, help="1,000 × true, beside GNU parallel and xargs -P: half a minute.")

if __name__ == "__main__":
    main()
