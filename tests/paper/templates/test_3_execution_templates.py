"""Paper 001 (execution templates) §3: what templates have to be."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.commanding_core import CENTRAL, Event, Switches
from frontends.dataflow.commands import (
    Dispatch,
    Install,
    Instantiate,
    Invoke,
    Submit,
)
from frontends.dataflow.control_messages import CONTROLLER, DRIVER
from frontends.dataflow.messages import Chunk
from tests.support.dataflow_commanded_world import CommandedWorld
from tests.support.nimbus import figure_4, figure_5


def inline(partitions: int = 4) -> Dataflow:
    return Dataflow(plane="inline", partitions=partitions, progress=False)


def stepping(df: Dataflow) -> Any:
    X = df.partition(np.arange(8.0), name="X")

    @df.stage(writes=[X])
    def step(x: Any, *, times: float) -> None:
        x *= times

    def program() -> Any:
        for number in range(6):
            step(times=number + 1.0)
            df.barrier()
        return X

    df.run(df.barrier)
    return program


def test_3_a_loop_is_sent_to_the_controller_once_and_then_executed_again() -> None:
    """ "Rather than resend all of the tasks for that loop to the controller on every iteration, it should instead send
    them once. For subsequent iterations, it can tell the controller 'execute those tasks again.'"."""
    df = inline()
    program = stepping(df)
    world = CommandedWorld(df, 2)
    world.log = []
    world.run(program)
    asked = [message for _, peer, message in world.log if peer == CONTROLLER and isinstance(message, Submit | Invoke)]
    assert isinstance(asked[0], Submit) and len(asked[0].tasks) == 5
    assert all(isinstance(message, Invoke) for message in asked[1:]) and len(asked) == 6


def test_3_1_templates_are_made_while_tasks_come_and_are_dispatched() -> None:
    """ "Templates must be dynamically generated […] They receive a stream of tasks": those of the first iteration are
    dispatched, singly, and nothing is known of them before."""
    df = inline()
    program = stepping(df)
    world = CommandedWorld(df, 2)
    world.log = []
    world.run(program)
    assert sum(len(message.commands) for _, _, message in world.log if isinstance(message, Dispatch)) == 5
    assert world.controller.counts[Event.CAPTURED] == 1
    assert sum(isinstance(message, Install) for _, _, message in world.log) == 2


def test_3_2_templates_are_filled_with_parameters_and_with_what_tells_their_instances_apart() -> None:
    """ "A driver must be able to pass parameters to execution templates […] templates also require control parameters,
    such as which task identifiers to use"."""
    df = inline()
    program = stepping(df)
    world = CommandedWorld(df, 2)
    world.log = []
    world.run(program)
    world.check_equal_to_inline()
    orders = [message for _, peer, message in world.log if peer == 0 and isinstance(message, Instantiate)]
    assert [dict(message.parameters)[0]["times"] for message in orders] == [2, 3, 4, 5, 6]
    assert len({message.block for message in orders}) == len({message.first_call for message in orders}) == 5
    assert len({message.template for message in orders}) == 1


def test_3_3_workers_resolve_dependencies_without_the_controller() -> None:
    """ "For a worker to be able to execute the tasks for both lines of code locally, without coordinating with the
    controller": between the order and the word that all is done, nothing goes to or from the controller."""
    df = inline()
    program = figure_4(df)
    world = CommandedWorld(df, 3, Random(1))
    world.run(program)
    world.log = []
    world.run(program)
    kinds = {type(message).__name__ for sender, peer, message in world.log if {sender, peer} & {CONTROLLER, DRIVER}}
    assert kinds == {"Invoke", "Instantiate", "Finished", "Answer"}
    world.times = 2
    world.check_equal_to_inline()


def test_3_4_workers_exchange_data_directly() -> None:
    """ "As part of executing the template, the two workers need to directly exchange this data": neither chunks nor
    copies go through the controller, on both planes."""
    for switches in (Switches(), CENTRAL):
        df = inline()
        program = figure_4(df)
        world = CommandedWorld(df, 3, Random(1), switches=switches)
        world.log = []
        world.run(program)
        between = [message for sender, peer, message in world.log if sender >= 0 and peer >= 0]
        assert {type(message).__name__ for message in between} == {"Chunk", "Copy"}
        assert not any(
            isinstance(message, Chunk) or (hasattr(message, "value") and isinstance(message.value, np.ndarray))
            for sender, peer, message in world.log
            if min(sender, peer) < 0
        )


def test_3_5_an_assumption_about_where_data_are_is_looked_at_and_made_true() -> None:
    """ "A controller […] must validate whether a template's preconditions hold, and if not, insert tasks to patch it":
    as when "a driver […] might insert instructions that increment a variable and store it in a different register"."""
    df = inline()
    program = stepping(df)
    world = CommandedWorld(df, 2)
    world.run(program)
    world.controller.move((1, 0), 1)  # The variable is in another register now, and the template edited;
    world.run(program)
    assert world.controller.counts[Event.STALE] == world.controller.counts[Event.PATCHED] == 1
    world.times = 2
    world.check_equal_to_inline()


def test_3_6_templates_cost_a_message_a_worker_whatever_the_number_of_tasks() -> None:
    """ "The performance gains of instantiating them must be greater than their cost": of messages, that is seen in the
    second iteration. Measured times are in `python -m benchmarks.dataflow templates`."""
    sent = {}
    for partitions in (4, 40):
        df = inline(partitions)
        program = stepping(df)
        world = CommandedWorld(df, 2)
        world.run(program)
        world.sent.clear()
        world.run(program)
        sent[partitions] = dict(world.sent)
    assert sent[4] == sent[40] == {"Invoke": 6, "Instantiate": 12, "Finished": 12, "Answer": 6}


def test_table_2_a_data_object_is_what_a_register_is() -> None:
    """A template names objects; what is in them may be other at each execution, as with a function's registers."""
    world, program, numbers = figure_5()
    world.run(program)
    before = [world.value(numbers[name], 0).item() for name in ("one", "two", "three")]
    world.run(program)
    after = [world.value(numbers[name], 0).item() for name in ("one", "two", "three")]
    assert before == [1 + 7 * 7 + 16, 7, 16] and after == [66 + 7 * 87 + 146, 87, 146]
    assert world.controller.counts[Event.CAPTURED] == 1
