"""The methods of an actor as its handles offer them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sparrow_py import calls
from sparrow_py.actors.messages import CALL_BYTES_MAX, METHOD_CHARS_MAX
from sparrow_py.errors import InvalidRequest

OF_HANDLES = frozenset({"ready", "state", "stop"})
"""What a handle has besides the methods of the actor."""


def methods_of(cls: type) -> frozenset[str]:
    """The names of the public methods of a class; `InvalidRequest` if a handle has something else of that name."""
    if not isinstance(cls, type):
        raise InvalidRequest("cls", cls, "a class")
    names = {name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None))}
    if taken := sorted(names & OF_HANDLES):
        allowed = f"a class without {' and '.join(taken)}, which handles have: give it another name in a subclass"
        raise InvalidRequest("cls", cls, allowed)
    if too_long := [name for name in names if len(name) > METHOD_CHARS_MAX]:
        raise InvalidRequest("cls", too_long[0], f"names of methods of at most {METHOD_CHARS_MAX} characters")
    return frozenset(names)


def encode_call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments, pickled. Raises as `calls.encode_arguments`, and `InvalidRequest` for what no actor is given."""
    payload = calls.encode_arguments(args, kwargs)
    if not isinstance(payload, bytes):
        allowed = "values: give future.result() and client.get(stored), or give these to the constructor"
        raise InvalidRequest(f"arguments of {method}", "a future or a stored value", allowed)
    if len(payload) > CALL_BYTES_MAX:
        raise InvalidRequest(f"arguments of {method}", f"{len(payload)} bytes", f"at most {CALL_BYTES_MAX}")
    return payload


class Methods:
    """Base of handles: an attribute for each method, which calls it. `AttributeError` for other names, at once."""

    __slots__ = ("_methods", "_name")

    def __init__(self, name: str, methods: frozenset[str]) -> None:
        self._name = name
        self._methods = methods

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{name!r}: only public methods of an actor can be called", name=name, obj=self)
        if name not in self._methods:
            known = ", ".join(sorted(self._methods)) or "none"
            raise AttributeError(f"{self._name} has no method {name!r}; it has {known}", name=name, obj=self)
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._methods})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    def _call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        raise NotImplementedError
