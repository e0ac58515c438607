"""The simulator's results for the settings of a run, to be drawn over the measured curve (Sparrow §7.1).

The simulator imports this package, and so is started from here as a program of its own (`python -m simulator run`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import orjson

from loadgen.point import PointPlan
from loadgen.recorded import Simulated, SimulatedPoint
from loadgen.synthetic import Synthetic
from loadgen.targets import CENTRAL
from sparrow_py.errors import ClusterError
from sparrow_py.start import command

TIMEOUT_S = 600.0
POLICIES = {CENTRAL: "central-daemon"}
"""What the simulator calls placements, where that is not their name: its `central` is one without cost or delay."""


def simulated(plans: Sequence[PointPlan]) -> Simulated:
    """Simulate each of these points, whose workloads are synthetic: the same jobs, by the same seed. `ClusterError` if
    the simulator cannot."""
    points = [_simulated_point(plan) for plan in plans]
    return Simulated(points, "python -m " + " ".join(["simulator", *_arguments(plans[0])]) if plans else "")


def _arguments(plan: PointPlan) -> list[str]:
    workload, shape = plan.workload, plan.shape
    assert isinstance(workload, Synthetic)
    assert shape is not None
    options = {
        "nodes": shape.nodes,
        "slots": shape.slots,
        "schedulers": shape.schedulers,
        "policy": POLICIES.get(shape.placement, shape.placement),
        "profile": shape.profile,
        "load": workload.load,
        "probe-ratio": plan.probe_ratio,
        "tasks": workload.tasks,
        "jobs": workload.jobs,
        "service": workload.durations.kind,
        "mean-ms": workload.durations.mean_ms,
        "seed": plan.seed,
    }
    flags = [text for name, value in options.items() for text in (f"--{name}", f"{value}")]
    return ["run", "--json", *flags]


def _simulated_point(plan: PointPlan) -> SimulatedPoint:
    try:
        done = subprocess.run(
            command("simulator", *_arguments(plan)), capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"the simulator did not answer: {error}") from None
    if done.returncode:
        raise ClusterError(f"the simulator failed: {done.stderr.decode(errors='replace')[-300:].strip()}")
    found = orjson.loads(done.stdout)
    assert plan.shape is not None
    return SimulatedPoint(
        placement=plan.shape.placement,
        profile=plan.shape.profile,
        load=plan.load,
        probe_ratio=plan.probe_ratio,
        p50=found["response_p50_ms"],
        p5=found["response_p5_ms"],
        p95=found["response_p95_ms"],
    )
