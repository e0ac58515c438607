"""Paper 001 (execution templates) §5, as far as it is counted; times: `python -m benchmarks.dataflow templates`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Event, Switches
from tests.support.dataflow_commanded_world import CommandedWorld


def stages(df: Dataflow) -> Any:
    """Two stages on each partition, and a signal."""
    X = df.partition(np.zeros(df.partitions), name="X")
    one, other = (df.stage(writes=[X], name=name)(_add_one) for name in ("one", "other"))

    def program() -> None:
        one()
        other()
        df.barrier()

    df.run(df.barrier)
    return program


def _add_one(x: Any) -> None:
    x += 1


PER_ITERATION = {
    "central": (CENTRAL, lambda tasks, workers: 2 * tasks),
    "controller template": (Switches(worker_templates=False), lambda tasks, workers: 2 * tasks),
    "templates": (ALL_ON, lambda tasks, workers: 2 * workers),
}


@pytest.mark.parametrize("plane", PER_ITERATION)
@pytest.mark.parametrize("workers", [1, 10, 50])
def test_5_2_messages_of_the_controller_and_workers_in_an_iteration(plane: str, workers: int) -> None:
    """ "If T is the number of tasks to execute in a block and W is the number of workers, Spark's controller cost is
    O(T) […] and execution templates are O(W)"."""
    switches, expected = PER_ITERATION[plane]
    df = Dataflow(plane="inline", partitions=workers * 2, progress=False)
    program = stages(df)
    world = CommandedWorld(df, workers, switches=switches)
    world.run(program, times=3)
    world.sent.clear()
    world.log = []
    world.run(program)
    tasks = 2 * 2 * workers + 1
    numbers = sum(len(message.numbers) if hasattr(message, "numbers") else 1
                  for sender, peer, message in world.log if sender >= 0 and peer < 0)  # fmt: skip
    assert world.sent["Dispatch"] + world.sent["Instantiate"] + numbers == expected(tasks, workers)
    asked = world.sent["Submit"] + world.sent["Invoke"]
    assert asked == 1, "the driver's tasks are in one frame here"


def test_5_3_table_4_templates_of_the_controller_spare_the_driver_and_those_of_workers_the_controller() -> None:
    """ "A controller template transforms tens of thousands of messages from the driver to the controller to a single
    message. Worker templates transform tens of thousands of messages from the controller to the workers to one message
    per worker"."""
    sent = {}
    for plane, (switches, _) in PER_ITERATION.items():
        df = Dataflow(plane="inline", partitions=20, progress=False)
        program = stages(df)
        world = CommandedWorld(df, 2, switches=switches)
        world.run(program, times=2)
        world.log = []
        world.run(program)
        sent[plane] = (
            sum(len(message.tasks) for _, _, message in world.log if hasattr(message, "ends")),
            sum(len(message.commands) for _, _, message in world.log if hasattr(message, "commands")),
        )
    assert sent == {"central": (41, 41), "controller template": (0, 41), "templates": (0, 0)}


def test_5_4_figure_9_half_of_the_workers_stop_and_come_back_and_find_their_templates() -> None:
    """ "The controller receives a command from a cluster manager to stop using half of its workers. This does not
    change the controller template […] 50 workers are restored to the controller. It is then able to go back to using
    its first set of templates, which are still cached"."""
    df = Dataflow(plane="inline", partitions=16, progress=False)
    program = stages(df)
    world = CommandedWorld(df, 8)
    installed = []
    for share in (8, 4, 8, 4, 8):
        for slot, _ in list(world.controller.placed.items()):
            world.controller.move(slot, slot[1] * share // 16 if slot[0] else 0)
        before = world.controller.counts[Event.INSTALLED]
        world.run(program, times=3)
        installed.append(world.controller.counts[Event.INSTALLED] - before)
        busy = {core.me for core in world.cores.values() if any(dataset for dataset, _ in core.held)}
        assert busy == set(range(share))
    assert installed == [8, 4, 0, 0, 0] and world.controller.counts[Event.CAPTURED] == 1
    world.times = 15
    world.check_equal_to_inline()
