"""Programs of the examples, to be run by something else than their own Dataflow."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

from frontends.dataflow import Dataflow


class _Taken(Exception):
    def __init__(self, df: Dataflow, program: Callable[[], Any]) -> None:
        self.df, self.program = df, program


class _Taking(Dataflow):
    """Gives its program away instead of running it."""

    def run(self, program: Callable[[], Any]) -> Any:
        raise _Taken(self, program)


def program_of(module: ModuleType, call: Callable[[], Any]) -> tuple[Dataflow, Callable[[], Any]]:
    """The first program that `call` would run, with its Dataflow; the module's functions make both."""
    with mock.patch.object(module, "Dataflow", _Taking):
        try:
            call()
        except _Taken as taken:
            return taken.df, taken.program
    raise AssertionError(f"{module.__name__} runs no program")
