"""Compiling before the first round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ROUND = """
from numba.core.event import install_recorder
from scheduler.flow.warm_up import warm_up

warm_up()
from scheduler.flow.changes import Changes
from scheduler.flow.extract import extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.relaxation import Relaxation
import numpy as np

with install_recorder("numba:compile") as recorder:
    graph = FlowGraph()
    sink = graph.add_node(kind=Kind.SINK)
    changes, solver = Changes(graph, sink), Relaxation(graph)
    machine = changes.add_node(kind=Kind.MACHINE)
    changes.add_arc(machine, sink, 0, 1)
    tasks = [changes.add_node(1, Kind.TASK) for _ in range(5)]
    ways = [changes.add_arc(task, head, 2, 1) for task in tasks for head in (machine, sink)]
    changes.apply()
    solver.solve()
    placements = extract(graph)
    arcs = settle(graph, placements, np.flatnonzero(placements.machine >= 0), np.zeros(1, np.int64))
    changes.set_costs(arcs, graph.cost[arcs] - 1)
    changes.set_capacity(ways[1], 2)
    changes.set_supply(tasks[1], 2)
    changes.remove_arc(ways[3])
    changes.remove_node(tasks[0])
    changes.apply()
    try:
        solver.solve()
    except ValueError:
        pass
    extract(graph)
    changes.set_supply(tasks[1], 1)
    changes.apply()
    cost_scaling.solve(graph.problem(), graph.solution())
assert not recorder.buffer, recorder.buffer

from scheduler.flow.compiled import is_compiled, note_compiled

assert not is_compiled()
note_compiled()
assert is_compiled()
print("nothing compiled")
"""


@pytest.mark.rest
@pytest.mark.processes
def test_a_round_compiles_nothing_any_more(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}  # Else what tests have compiled would be found.
    done = subprocess.run(
        [sys.executable, "-c", ROUND], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("nothing compiled\n", 0), done.stderr
