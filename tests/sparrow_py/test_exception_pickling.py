"""Exceptions that arrive as themselves, and what arrives of those that cannot."""

import copyreg
import pickle
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from sparrow_py import Client, RemoteTraceback
from sparrow_py.exception_pickling import EXCEPTIONS_MAX, LeftBehind, encode_exception, with_traceback
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S


class Several(Exception):
    """Its arguments are not those of its base."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"{code} at {where}")
        self.code = code
        self.where = where


class Optional(Exception):
    """pickle alone would make another of it, and say nothing."""

    def __init__(self, text: str = "", code: int = 0) -> None:
        super().__init__(f"[{code}] {text}")
        self.code = code


class OfTheSystem(OSError):
    def __init__(self, name: str) -> None:
        super().__init__(2, "is missing", name)


class NoText(UnicodeDecodeError):
    def __init__(self, data: bytes) -> None:
        super().__init__("utf-8", data, 0, 1, "odd")


class WithNew(Exception):
    def __new__(cls, first: int, second: int) -> "WithNew":
        return super().__new__(cls, first + second)

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)


class InSlots(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ReducesItself(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return ReducesItself, (self.code, f"{self.args[0]} again")


class ReducesBadly(Several):
    def __reduce__(self) -> NoReturn:
        raise TypeError("not me")


class SetsState(Exception):
    def __setstate__(self, state: dict[str, Any] | None) -> None:
        super().__setstate__({**(state or {}), "was_set": True})


class Registered(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


copyreg.pickle(Registered, lambda error: (Registered, (error.code, "as registered")))  # type: ignore[arg-type]


class Group(ExceptionGroup[Exception]):
    def __new__(cls, errors: list[Exception], code: int) -> "Group":
        group = super().__new__(cls, f"code {code}", errors)
        group.code = code
        return group

    code: int


class TwoBases(KeyError, OSError):
    def __init__(self, code: int, *, more: str) -> None:
        super().__init__(code, more)
        self.more = more


@dataclass(frozen=True)
class Frozen(Exception):
    code: int
    text: str


def through(error: BaseException) -> BaseException:
    """The exception as a client gets it."""
    exception, text = pickle.loads(encode_exception(error, "the trace"))
    assert text == "the trace"
    assert isinstance(exception, BaseException)
    return exception


def raised(fail: Callable[[], object]) -> BaseException:
    try:
        fail()
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def linked(error: BaseException, *, cause: BaseException | None, context: BaseException | None) -> BaseException:
    error.__cause__, error.__context__ = cause, context
    return error


# ---- by themselves ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        KeyError(1, "two"),
        SystemExit(3),
        KeyboardInterrupt(),
        Several(3, where="here"),
        Optional("odd", 4),
        OfTheSystem("/missing"),
        FileNotFoundError(2, "is missing", "/one", None, "/two"),
        ImportError("no", name="module", path="/path"),
        NoText(b"\xff"),
        UnicodeEncodeError("ascii", "é", 0, 1, "odd"),
        SyntaxError("odd", ("file", 1, 2, "text", 1, 3)),
        WithNew(1, 2),
        SetsState("a"),
        TwoBases(3, more="b"),
        Frozen(3, "text"),
        tasks.OneWay(1, 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_arrives_as_itself(error: BaseException) -> None:
    BaseException.__setattr__(error, "__notes__", ["a note"])
    arrived = through(error)
    assert type(arrived) is type(error)
    assert arrived.args == error.args
    assert str(arrived) == str(error)
    assert error.__dict__.items() <= arrived.__dict__.items()
    assert arrived.__notes__ == ["a note"]
    for name in ("errno", "filename", "filename2", "name", "path", "object", "reason", "code", "lineno", "text"):
        assert getattr(arrived, name, None) == getattr(error, name, None)


def test_attributes_in_slots_arrive() -> None:
    arrived = through(InSlots(3, "text"))
    assert (arrived.code, str(arrived)) == (3, "text")  # type: ignore[attr-defined]
    assert not hasattr(arrived, "unset")


@pytest.mark.parametrize("cause", [None, ValueError("why")])
def test_a_class_that_says_how_it_is_pickled_is_taken_at_its_word(cause: BaseException | None) -> None:
    for error, text in (ReducesItself(3, "text"), "text again"), (Registered(3, "text"), "as registered"):
        arrived = through(linked(error, cause=cause, context=None))
        assert (arrived.code, str(arrived)) == (3, text)  # type: ignore[attr-defined]
        assert repr(arrived.__cause__) == repr(cause)
    state = linked(SetsState("a"), cause=cause, context=None)
    state.code = 3  # type: ignore[attr-defined]
    assert through(state).__dict__ == {"code": 3, "was_set": True}


def test_a_class_that_is_wrong_about_how_it_is_pickled_is_pickled_all_the_same() -> None:
    arrived = through(ReducesBadly(3, where="here"))
    assert (type(arrived), arrived.__dict__) == (ReducesBadly, {"code": 3, "where": "here"})


def test_what_pickle_does_well_looks_as_ever() -> None:
    """So that a client of an older version can read it."""
    assert b"sparrow_py.exception_pickling" not in encode_exception(ValueError("plain"), "")
    assert b"sparrow_py.exception_pickling" not in encode_exception(ReducesItself(1, "text"), "")


# ---- together --------------------------------------------------------------------------------


def test_cause_context_and_the_suppression_of_a_context_arrive() -> None:
    error = linked(Several(1, where="here"), cause=Optional("cause", 2), context=Frozen(3, "context"))
    arrived = through(linked(ValueError("last"), cause=error, context=KeyError("context")))
    assert repr(arrived.__context__) == "KeyError('context')"
    assert arrived.__suppress_context__
    inner = arrived.__cause__
    assert type(inner) is Several
    assert (type(inner.__cause__), type(inner.__context__)) == (Optional, Frozen)
    context = through(linked(ValueError("last"), cause=None, context=KeyError("context")))
    context.__suppress_context__ = False
    assert repr(through(context).__context__) == "KeyError('context')"
    assert not through(context).__suppress_context__


def test_groups_arrive_with_what_is_in_them() -> None:
    inner = Group([linked(Several(1, where="here"), cause=KeyError("why"), context=None), tasks.OneWay(1, 2)], 7)  # type: ignore[list-item]
    arrived = through(BaseExceptionGroup("all", [inner, KeyboardInterrupt()]))
    assert isinstance(arrived, BaseExceptionGroup)
    group = arrived.exceptions[0]
    assert isinstance(group, Group)
    assert (group.code, group.message) == (7, "code 7")
    assert [type(error) for error in group.exceptions] == [Several, tasks.OneWay]
    assert repr(group.exceptions[0].__cause__) == "KeyError('why')"


def test_exceptions_that_refer_to_each_other_arrive() -> None:
    first, second = Several(1, where="here"), ValueError("second")
    linked(first, cause=second, context=second)
    linked(second, cause=first, context=None)
    first.itself = first  # type: ignore[attr-defined]
    arrived = through(first)
    assert arrived.itself is arrived  # type: ignore[attr-defined]
    assert arrived.__cause__ is arrived.__context__
    assert arrived.__cause__ is not None
    assert arrived.__cause__.__cause__ is arrived


def test_of_a_chain_that_is_too_long_the_exception_itself_arrives() -> None:
    error: BaseException = ValueError("first")
    for number in range(20 * EXCEPTIONS_MAX):
        error = linked(Several(number, where="chain"), cause=None, context=error)
    arrived = through(error)
    assert type(arrived) is Several
    assert arrived.code == 20 * EXCEPTIONS_MAX - 1


# ---- the traceback ---------------------------------------------------------------------------


def test_the_traceback_is_the_cause_of_the_first_cause() -> None:
    cause = ValueError("why")
    error = with_traceback(linked(KeyError("what"), cause=cause, context=cause), "the trace")
    assert error.__cause__ is cause
    assert isinstance(cause.__cause__, RemoteTraceback)
    shown = "".join(traceback.format_exception(error))
    assert shown.index("the trace") < shown.index("ValueError: why") < shown.index("KeyError: 'what'")


def test_of_an_exception_without_a_cause_the_traceback_is_the_cause() -> None:
    context = ValueError("meanwhile")
    error = with_traceback(linked(KeyError("what"), cause=None, context=context), "the trace")
    assert isinstance(error.__cause__, RemoteTraceback)
    assert error.__context__ is context


def test_where_causes_go_round_in_a_circle_there_is_a_traceback_all_the_same() -> None:
    error, cause = KeyError("what"), ValueError("why")
    linked(error, cause=cause, context=None)
    linked(cause, cause=error, context=None)
    assert with_traceback(error, "the trace").__cause__ is cause
    assert isinstance(cause.__cause__, RemoteTraceback)


# ---- what cannot be pickled ------------------------------------------------------------------


def test_an_attribute_that_cannot_be_pickled_is_left_behind() -> None:
    error = Several(3, where="here")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    error.more = [1]  # type: ignore[attr-defined]
    arrived = through(error)
    assert type(arrived) is Several
    left = arrived.__dict__.pop("lock")
    assert arrived.__dict__ == {"code": 3, "where": "here", "more": [1]}
    assert isinstance(left, LeftBehind)
    assert "_thread.lock object" in repr(left)
    assert "which stayed at the worker: TypeError: cannot pickle '_thread.lock' object" in repr(left)


def test_an_argument_that_cannot_be_pickled_is_said_with_class_reason_and_repr() -> None:
    arrived = through(tasks.Unshowable(threading.Lock()))
    assert type(arrived) is RuntimeError
    assert str(arrived).startswith("Unshowable: <Unshowable, which cannot be shown> (the exception itself, a ")
    assert "tests.support.tasks.Unshowable, cannot be pickled: TypeError: cannot pickle '_thread.lock'" in str(arrived)
    assert "its repr: Unshowable(<unlocked _thread.lock object" in str(arrived)


def test_only_what_cannot_be_pickled_has_something_in_its_place() -> None:
    broken = ValueError(threading.Lock())
    error = linked(Several(1, where="here"), cause=broken, context=Frozen(2, "context"))
    arrived = through(ExceptionGroup("all", [error, KeyError("other")]))  # type: ignore[list-item]
    assert isinstance(arrived, ExceptionGroup)
    first, second = arrived.exceptions
    assert (type(first), repr(second)) == (Several, "KeyError('other')")
    assert type(first.__cause__) is RuntimeError
    assert "a ValueError, cannot be pickled" in str(first.__cause__)
    assert type(first.__context__) is Frozen


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
def test_whatever_pickling_raises_it_is_only_said(kind: type[BaseException]) -> None:
    error = Several(1, where="here")
    error.awkward = tasks.RaisesAtPickling(kind)  # type: ignore[attr-defined]
    assert isinstance(through(error).awkward, LeftBehind)  # type: ignore[attr-defined]
    arrived = through(ValueError(tasks.RaisesAtPickling(kind), tasks.RaisesAtUnpickling(kind)))
    assert f"cannot be pickled: {kind.__name__}: on purpose" in str(arrived)


# ---- from a worker ---------------------------------------------------------------------------


def test_exceptions_of_a_tasks_own_classes_come_from_a_worker_with_cause_and_notes(client: Client) -> None:
    class Own(Exception):
        def __init__(self, code: int, *, lock: Any) -> None:
            super().__init__(f"code {code}")
            self.code, self.lock = code, lock

    def fail() -> None:
        try:
            tasks.fail_one_way()
        except tasks.OneWay as error:
            own = Own(3, lock=threading.Lock())
            own.add_note("a note")
            raise own from error

    with pytest.raises(Own, match="code 3") as caught:
        client.submit(fail).result(TIMEOUT_S)
    error: Any = caught.value
    assert (error.code, error.__notes__) == (3, ["a note"])
    assert isinstance(error.lock, LeftBehind)
    assert type(error.__cause__) is tasks.OneWay
    assert error.__context__ is error.__cause__
    assert isinstance(error.__cause__.__cause__, RemoteTraceback)
    assert "raise own from error" in str(error.__cause__.__cause__)
    assert "fail_one_way" in str(error.__cause__.__cause__)


def test_a_class_of_a_task_comes_with_it(client: Client) -> None:
    def fail() -> None:
        class Local(Exception):
            def __init__(self, first: int, second: int) -> None:
                super().__init__(first * second)

        raise ExceptionGroup("both", [Local(2, 3), Local(4, 5)])

    error = client.submit(fail).exception(TIMEOUT_S)
    assert isinstance(error, ExceptionGroup)
    assert [(type(one).__name__, one.args) for one in error.exceptions] == [("Local", (6,)), ("Local", (20,))]


def test_what_the_interpreters_own_class_keeps_beside_its_arguments_arrives_with_a_cause_too() -> None:
    error = ImportError("m", name="n", path="p")
    error.__cause__ = ValueError(1)
    (arrived, _) = pickle.loads(encode_exception(error, "text"))
    assert (arrived.name, arrived.path, arrived.args) == ("n", "p", ("m",))


@pytest.mark.parametrize("from_another", [False, True])
def test_a_traceback_grows_by_a_level_with_each_task_that_an_exception_crosses(from_another: bool) -> None:
    """Tasks that wait for tasks (`Client.current`): each level's traceback is shown once."""
    error: BaseException = ValueError("deep")
    lengths = []
    for level in range(1, 13):
        try:
            if from_another and level > 1:
                raise KeyError(level) from error
            raise error
        except Exception as raised:
            sent = encode_exception(raised, "".join(traceback.format_exception(raised)))
        error = with_traceback(*pickle.loads(sent))
        lengths.append(len("".join(traceback.format_exception(error))))
    assert "".join(traceback.format_exception(error)).count("ValueError: deep") <= 14
    assert lengths[11] < 5 * lengths[5], "no level repeats those below it: it doubled with each"
