"""Compiling before the first round."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scheduler.flow import compiled

ROOT = Path(__file__).parents[3]

ROUND = """
import sys
from numba.core.dispatcher import Dispatcher
from scheduler.flow.warm_up import warm_up


def ready():
    modules = [module for name, module in sys.modules.items() if name.startswith("scheduler.flow.")]
    kernels = [kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Dispatcher)]
    return {(kernel, types) for kernel in kernels for types in kernel.overloads}


warm_up()
from scheduler.flow.changes import Changes
from scheduler.flow.extract import extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.network import excesses
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.relaxation import Relaxation
import numpy as np

graph = FlowGraph()
excesses(graph.network)  # Compiled with `repair`, which calls it; where both were kept, it is loaded when first called.
before = ready()
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
assert len(before) > 20
assert ready() == before, ready() - before
print("nothing compiled")
"""


@pytest.mark.rest
@pytest.mark.processes
def test_a_round_compiles_nothing_any_more() -> None:
    """In a process that has called nothing else. Whether a kernel is compiled or was kept by other tests, the process
    has it for some types from the first call with such on."""
    done = subprocess.run([sys.executable, "-c", ROUND], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("nothing compiled\n", 0), done.stderr


def test_what_was_compiled_is_noted_beside_what_numba_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SimpleNamespace(check=SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path))))
    monkeypatch.setattr(compiled, "network", kept)
    assert not compiled.is_compiled()
    compiled.note_compiled()
    assert compiled.is_compiled()
