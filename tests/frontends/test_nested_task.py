"""A task that waits: it goes on only with a slot, whatever a signal's handler raises and whichever thread it is in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from frontends.python.nested_task import NestedTask
from sparrow_py.errors import NotInTask, WaitRefused
from sparrow_py.executors import executor_protocol as x

Step = Callable[[], object]


class Conversation:
    """The connection of an executor, and what its node monitor does each time that it is heard."""

    path, files_directory = "socket", "files"

    def __init__(self, *steps: Step, gone: bool = False) -> None:
        self.steps = list(steps)
        self.gone = gone
        self.said: list[Any] = []

    def send_through(self, messages: list[Any]) -> None:
        self.said += messages

    def is_gone(self) -> bool:
        return self.gone

    def hear_until(self, happened: Callable[[], bool]) -> None:
        self.steps.pop(0)()


class Task(NestedTask):
    """Run 1. steps: what is heard, or raised, in turn."""

    def __init__(self, *steps: x.MayWait | x.HasSlot | BaseException, gone: bool = False) -> None:
        self.conversation = Conversation(*(lambda one=one: self._step(one) for one in steps), gone=gone)  # type: ignore[misc]
        self.ended: list[x.ExecutorMessage] = []
        super().__init__(self.conversation, self.conversation, self.ended)  # type: ignore[arg-type]
        self.begin(1)

    def _step(self, one: x.MayWait | x.HasSlot | BaseException) -> None:
        if isinstance(one, BaseException):
            raise one
        self.heard(one)


def test_what_it_waits_for_comes_between_giving_the_slot_back_and_having_it_again() -> None:
    task = Task(x.MayWait(1), x.HasSlot(1))
    said: list[Any] = []
    assert task.without_slot(lambda: said.extend(task.conversation.said) or "value") == "value"
    assert said == [x.Waits(1)] and task.conversation.said == [x.Waits(1), x.WantsSlot(1)]
    task.end()


@pytest.mark.parametrize(
    "error", [TimeoutError("alarm"), InterruptedError(), KeyboardInterrupt(), EOFError()], ids=repr
)
def test_what_a_handler_raises_is_raised_once_the_task_has_its_slot(error: BaseException) -> None:
    for steps in (
        [x.MayWait(1), error, x.HasSlot(1)],
        [error, x.MayWait(1), x.HasSlot(1)],
    ):
        task = Task(*steps)  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            task.without_slot(lambda: True)
        assert not task.conversation.steps and task.conversation.said == [x.Waits(1), x.WantsSlot(1)]


def test_an_exception_while_it_waits_comes_after_the_slot() -> None:
    task = Task(x.MayWait(1), x.HasSlot(1))
    with pytest.raises(ZeroDivisionError):
        task.without_slot(lambda: 1 // 0)
    assert not task.conversation.steps


def test_once_the_node_monitor_is_gone_nobody_is_waited_for() -> None:
    task = Task(EOFError(), gone=True)
    with pytest.raises(EOFError):
        task.without_slot(lambda: True)


def test_a_refused_wait_is_none() -> None:
    task = Task(x.MayWait(1, "too many"))
    with pytest.raises(WaitRefused, match="too many"):
        task.without_slot(lambda: pytest.fail("it waits"))
    assert task.conversation.said == [x.Waits(1)]


def test_what_the_executor_has_yet_to_say_goes_first() -> None:
    task = Task(x.MayWait(1), x.HasSlot(1))
    task.ended.append(x.Returned([7]))
    task.without_slot(lambda: True)
    assert task.conversation.said[0] == x.Returned([7]) and not task.ended


def test_a_wait_within_a_wait_and_one_of_another_thread_are_plain() -> None:
    task = Task(x.MayWait(1), x.HasSlot(1))

    def waits() -> bool:
        thread = threading.Thread(target=lambda: task.without_slot(lambda: True))
        thread.start()
        thread.join()
        return task.without_slot(lambda: True)

    assert task.without_slot(waits)
    assert task.conversation.said == [x.Waits(1), x.WantsSlot(1)]


def test_a_client_ends_with_its_run() -> None:
    class Client:
        closed = False

        def close(self) -> None:
            self.closed = True

    task = Task()
    client = task.client(Client)
    assert task.client(Client) is client
    client.close()
    again = task.client(Client)
    assert again is not client
    task.end()
    assert again.closed
    with pytest.raises(NotInTask):
        task.client(Client)
    assert task.without_slot(lambda: "no task, no slot") == "no task, no slot"
