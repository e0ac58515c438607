"""Which executors have which common bytes of stages: each is sent them once, and told when they mean nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node_monitor.executors.executor_state import ExecutorState
from sparrow_py.executors import executor_protocol as x


class SentCommonBytes:
    """What executors were sent, by the numbers of common bytes; `ExecutorState.commons` has it for each."""

    __slots__ = ("_executors", "_to_executor")

    def __init__(
        self, executors: Mapping[str, ExecutorState], to_executor: Callable[[str, x.ExecutorMessage], None]
    ) -> None:
        self._executors = executors
        self._to_executor = to_executor

    def send(self, executor: ExecutorState, number: int, data: x.Data) -> None:
        """The executor, which does not have them, is to run a task with these."""
        executor.commons.add(number)
        self._to_executor(executor.id, x.Common(number, data))

    def forget(self, numbers: list[int]) -> None:
        """Nobody will name these numbers any more."""
        for executor in self._executors.values():
            for number in sorted(executor.commons.intersection(numbers)) if executor.commons else ():
                executor.commons.discard(number)
                self._to_executor(executor.id, x.ForgetCommon(number))
