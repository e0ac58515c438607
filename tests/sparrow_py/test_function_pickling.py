"""Functions that travel by value."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from sparrow_py import function_pickling

SOURCE = """
def outer(x):
    def inner(y):
        return x + y

    return inner


total = lambda values: sum(value for value in values)
"""


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a module that workers do not have."""
    module = ModuleType("of_the_user_alone")
    exec(compile(SOURCE, "/home/ada/sweep.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cloudpickle.register_pickle_by_value(module)
    yield vars(module)  # type: ignore[misc]
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize("name", ["outer", "total"])
def test_code_keeps_the_name_of_its_file_and_so_does_code_within(functions: dict[str, Any], name: str) -> None:
    again: Callable[..., Any] = pickle.loads(function_pickling.dumps(functions[name]))
    assert again is not functions[name]
    codes = [again.__code__, *(one for one in again.__code__.co_consts if hasattr(one, "co_filename"))]
    assert len(codes) == 2
    assert {code.co_filename for code in codes} == {"/home/ada/sweep.py"}


def test_they_do_what_they_did(functions: dict[str, Any]) -> None:
    outer = pickle.loads(function_pickling.dumps(functions["outer"]))
    assert outer(1)(2) == 3
    assert pickle.loads(function_pickling.dumps(functions["outer"](40)))(2) == 42


def test_the_same_function_has_the_same_bytes_each_time(functions: dict[str, Any]) -> None:
    assert len({function_pickling.dumps(functions["outer"]) for _ in range(3)}) == 1


def test_all_else_is_as_cloudpickle_has_it() -> None:
    values = [1, "a", b"b" * 100, [None, {"x": 2.5}], {3, 4}, pow, dict, pytest.raises]
    for value in values:
        assert function_pickling.dumps(value) == cloudpickle.dumps(value, protocol=5)
