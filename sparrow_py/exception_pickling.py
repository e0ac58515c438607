"""Exceptions of tasks on their way from a worker to the client: pickled so that they arrive as themselves.

pickle makes an exception again by calling its class with its `args`. That fails, or makes another exception, where the
class's `__init__` takes anything else; and `__cause__` and `__context__` stay behind. Here an exception is made again
without its `__init__`: its base in C is given the `args`, and its attributes are set as they were. Classes that say
themselves how they are pickled are taken at their word. What pickle alone does well is left to it, and looks as ever.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MemberDescriptorType
from typing import Any

from sparrow_py import function_pickling
from sparrow_py.errors import RemoteTraceback, shown
from sparrow_py.job import Ended, TaskStatus

PROTOCOL = 5
HEAP_TYPE = 1 << 9
"""In a class's `__flags__`: it is not one of the interpreter's own (Py_TPFLAGS_HEAPTYPE)."""
EXCEPTIONS_MAX = 100
"""Exceptions that hang together of which it is found out, one by one, what of them cannot be pickled."""
TEXT_CHARS_MAX = 500
"""Of an exception's text, its repr, and why it cannot be pickled, where another tells of it."""


class LeftBehind:
    """In the place of an exception's attribute that could not be pickled, and stayed at the worker."""

    __slots__ = ("what", "why")

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        self.why = why

    def __repr__(self) -> str:
        return f"<{self.what}, which stayed at the worker: {self.why}>"

    def __reduce__(self) -> tuple[type[LeftBehind], tuple[str, str]]:
        return LeftBehind, (self.what, self.why)


def encode_exception(error: BaseException, text: str) -> bytes:
    """The exception and the text of its traceback, pickled, with the exceptions that hang on it.

    Attributes that cannot be pickled are left behind. In the place of an exception that cannot be pickled there is a
    `RuntimeError` that says why.
    """
    why: BaseException
    for dumped in (_dumped_as_it_is, _dumped_with_care):
        try:
            return dumped(error, text)
        except BaseException as reason:  # To pickle runs the user's code, which may raise anything.
            why = reason
    return pickle.dumps((_stand_in(error, why), text), PROTOCOL)


def ended_with(error: BaseException) -> Ended:
    """How a task ended that others wait for, if that is an error of its client's: theirs, too."""
    return TaskStatus.FAILED, encode_exception(error, f"{type(error).__name__}: {error}"), str(error)


def with_traceback(exception: BaseException, text: str) -> BaseException:
    """The exception with the traceback's text as the cause of the first of its causes, or its own if it has none."""
    first, seen = exception, {id(exception)}
    while (cause := first.__cause__) is not None and id(cause) not in seen:
        seen.add(id(cause))
        first = cause
    BaseException.__setattr__(first, "__cause__", RemoteTraceback(text))  # A frozen class's own refuses.
    return exception


def text_of(show: Callable[[Any], str], value: object) -> str:
    """`show(value)`, which runs the user's code and may fail."""
    try:
        return show(value)
    except BaseException:
        return f"<{type(value).__qualname__}, which cannot be shown>"


# ---- how exceptions are pickled --------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """How one exception is pickled.

    own: as its class says, if that says anything. links: with its cause and context. left: by name, what stands in
    for attributes. instead: this, and nothing of it.
    """

    own: bool = True
    links: bool = True
    left: Mapping[str, LeftBehind] = field(default_factory=dict)
    instead: RuntimeError | None = None


_AS_IT_IS = _Plan()


class _Pickler(function_pickling.Pickler):
    """Pickles exceptions by their plans, which are kept by the exceptions' ids."""

    def __init__(self, file: io.BytesIO, plans: Mapping[int, _Plan]) -> None:
        super().__init__(file, protocol=PROTOCOL)
        self._plans = plans

    def reducer_override(self, value: Any) -> Any:
        """For pickle: how to make an exception again; of all else what cloudpickle says."""
        if isinstance(value, BaseException):
            reduced = _reduced(value, self._plans.get(id(value), _AS_IT_IS))
            if reduced is not NotImplemented:
                return reduced
        return super().reducer_override(value)


def _dumped_as_it_is(error: BaseException, text: str) -> bytes:
    return _dumped((error, text), {})


def _dumped(value: object, plans: Mapping[int, _Plan]) -> bytes:
    """The value, pickled; raises what pickling raises, or unpickling: some exceptions pickle and do not unpickle."""
    file = io.BytesIO()
    _Pickler(file, plans).dump(value)
    data = file.getvalue()
    pickle.loads(data)
    return data


def _reduced(error: BaseException, plan: _Plan) -> Any:
    if plan.instead is not None:
        return plan.instead.__reduce__()
    kind = type(error)
    links = _links(error) if plan.links else None
    if plan.own and _has_own_way(kind):
        if links is None:
            return NotImplemented
        own = copyreg.dispatch_table.get(kind)
        reduced = own(error) if own is not None else error.__reduce_ex__(PROTOCOL)
        return _as_it_is, (_Reduced(reduced),), links, None, None, _link
    if links is None and not plan.left and not _defines(kind, "__init__", "__new__", "__slots__"):
        return NotImplemented
    reduced = _base_in_c(kind).__reduce__(error)
    args, state = reduced[1], reduced[2] if len(reduced) > 2 and isinstance(reduced[2], dict) else {}
    # What the interpreter's own class keeps beside `args`, as ImportError its name and path.
    kept = {name: value for name, value in state.items() if name not in vars(error)}
    attributes = {**kept, **_attributes(error), **plan.left}
    shape = (error.message, error.exceptions) if isinstance(error, BaseExceptionGroup) else args
    return _made, (kind, shape, args), (attributes, links), None, None, _complete


def _has_own_way(kind: type[BaseException]) -> bool:
    """Whether the class says how its exceptions are pickled."""
    return kind in copyreg.dispatch_table or _defines(kind, "__reduce__", "__reduce_ex__", "__setstate__")


def _defines(kind: type, *names: str) -> bool:
    """Whether the class, or one that it comes of, has any of these of its own, and not from the interpreter."""
    return any(name in vars(one) for one in kind.__mro__ if one.__flags__ & HEAP_TYPE for name in names)


def _base_in_c(kind: type[BaseException]) -> type[BaseException]:
    """The interpreter's own class whose shape the exceptions of this class have."""
    base: Any = kind
    while base.__flags__ & HEAP_TYPE:
        base = base.__base__
    return base  # type: ignore[no-any-return]


def _attributes(error: BaseException) -> dict[str, Any]:
    """What the exception has in slots and in its `__dict__`, notes included."""
    slots = {
        name
        for one in type(error).__mro__
        if one.__flags__ & HEAP_TYPE
        for name, value in vars(one).items()
        if isinstance(value, MemberDescriptorType)
    }
    in_slots = {}
    for name in slots:
        with contextlib.suppress(AttributeError):  # One that was never set.
            in_slots[name] = object.__getattribute__(error, name)
    return {**in_slots, **error.__dict__}


_Links = tuple[BaseException | None, BaseException | None, bool]
"""Cause, context, and whether the context is not to be shown."""


def _links(error: BaseException) -> _Links | None:
    """None if there are none. The traceback of a task that this task has waited for is no link: it is in the text that
    is sent along, which would be twice as long with each level of nested tasks that the exception crosses."""
    if isinstance(error.__cause__, RemoteTraceback):
        return None if error.__context__ is None else (None, error.__context__, True)
    links = error.__cause__, error.__context__, error.__suppress_context__
    return None if links == (None, None, False) else links


class _Reduced:
    """Is pickled as this; so an exception whose class says how it is pickled gets its links afterwards."""

    def __init__(self, reduced: str | tuple[Any, ...]) -> None:
        self._reduced = reduced

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._reduced


# ---- how they are made again: named in pickles, so they stay where they are ------------------


def _made(kind: type[BaseException], shape: tuple[Any, ...], args: tuple[Any, ...]) -> BaseException:
    error = _base_in_c(kind).__new__(kind, *shape)
    initialised_by = next(one for one in kind.__mro__ if not one.__flags__ & HEAP_TYPE)
    initialised_by.__init__(error, *args)  # type: ignore[misc]  # Where `super().__init__` ends, if all use it.
    return error


def _as_it_is(error: BaseException) -> BaseException:
    return error


def _complete(error: BaseException, state: tuple[dict[str, Any], _Links | None]) -> None:
    attributes, links = state
    slots = {name for name in attributes if isinstance(getattr(type(error), name, None), MemberDescriptorType)}
    error.__dict__.update({name: value for name, value in attributes.items() if name not in slots})
    for name in slots:
        with contextlib.suppress(AttributeError):  # One that a class in C does not let be set.
            BaseException.__setattr__(error, name, attributes[name])
    if links is not None:
        _link(error, links)


def _link(error: BaseException, links: _Links) -> None:
    names = "__cause__", "__context__", "__suppress_context__"  # To set a cause sets the last one, too.
    for name, value in zip(names, links, strict=True):
        BaseException.__setattr__(error, name, value)


# ---- where something cannot be pickled -------------------------------------------------------


def _dumped_with_care(error: BaseException, text: str) -> bytes:
    """As much of it as can be pickled; raises if that is nothing."""
    plans: dict[int, _Plan] = {}
    for one in reversed(list(_together(error))):  # Those that others have in them come before these.
        plans[id(one)] = _plan(one, plans)
    try:
        return _dumped((error, text), plans)
    except BaseException:  # What hangs together may do so in a chain that is too long for pickle.
        alone = {key: replace(plan, links=False) for key, plan in plans.items()}
        return _dumped((error, text), alone)


def _together(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that hang on it, nearest first: members of its group, its cause, its context."""
    found, seen = [error], {id(error)}
    for one in found:
        yield one
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        for other in (*members, one.__cause__, one.__context__):
            if other is not None and id(other) not in seen and len(found) < EXCEPTIONS_MAX:
                seen.add(id(other))
                found.append(other)


def _plan(error: BaseException, plans: Mapping[int, _Plan]) -> _Plan:
    """The first way that this exception by itself can be pickled."""
    why: BaseException | None = None
    ways: tuple[Callable[[], _Plan], ...] = (
        _Plan,
        lambda: _Plan(own=False),
        lambda: _Plan(own=False, left=_left(error, plans)),
    )
    for way in ways:
        try:
            plan = way()
            _dumped(error, {**plans, id(error): replace(plan, links=False)})
        except BaseException as reason:
            why = reason
        else:
            return plan
    assert why is not None
    return _Plan(instead=_stand_in(error, why))


def _left(error: BaseException, plans: Mapping[int, _Plan]) -> dict[str, LeftBehind]:
    left = {}
    for name, value in _attributes(error).items():
        try:
            _dumped(value, plans)
        except BaseException as reason:
            left[name] = LeftBehind(text_of(shown, value), _told(reason))
    return left


def _stand_in(error: BaseException, why: BaseException) -> RuntimeError:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return RuntimeError(
        f"{kind.__name__}: {text_of(str, error)[:TEXT_CHARS_MAX]} (the exception itself, a {name}, cannot be pickled: "
        f"{_told(why)}; its repr: {text_of(repr, error)[:TEXT_CHARS_MAX]})"
    )


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(str, error)}"[:TEXT_CHARS_MAX]
