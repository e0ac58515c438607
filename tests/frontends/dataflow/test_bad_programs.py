"""What cannot be is refused where it is declared or called, by name."""

from __future__ import annotations

import copy
import pickle
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow, InvalidProgram, NotInRun, PartitionChanged, StageReturned
from frontends.dataflow.captured import CAPTURED_BYTES_MAX, Watched

LARGE_GLOBAL = np.zeros(CAPTURED_BYTES_MAX)
LONG_LIST = list(range(5000))
SMALL_GLOBAL = np.arange(3)


class Programs:
    """A Dataflow with one dataset of each kind."""

    def __init__(self) -> None:
        self.df = Dataflow(plane="inline", partitions=3)
        self.X = self.df.partition(np.arange(6.0), name="X")
        self.other = self.df.empty(2, partitions=2, name="other")
        self.s = self.df.single(np.zeros(2), name="s")
        self.w = self.df.replicate(np.zeros(2), name="w")


@pytest.fixture
def p() -> Programs:
    return Programs()


def one(x: Any) -> None: ...


def two(x: Any, y: Any) -> None: ...


DECLARATIONS: list[tuple[str, Callable[[Programs], Any]]] = [
    ("different partitionings: X .partitioned, 3 partitions., other .partitioned, 2 partitions.",
     lambda p: p.df.stage(reads=[p.X], writes=[p.other])(two)),
    ("different partitionings: X .*, s .single, 1 partition.", lambda p: p.df.stage(reads=[p.X, p.s])(two)),
    ("on: <dataset X .*> is not a dataset of one partition", lambda p: p.df.signal(on=p.X)(one)),
    ("on: <dataset w .*> is not a dataset of one partition", lambda p: p.df.signal(on=p.w)(one)),
    ("stage two has 3 tasks, which would all write w", lambda p: p.df.stage(reads=[p.X], writes=[p.w])(two)),
    ("names X twice; .* name it in writes alone", lambda p: p.df.stage(reads=[p.X], writes=[p.X])(two)),
    ("takes 2 positional arguments, and is handed 1: X", lambda p: p.df.stage(reads=[p.X])(two)),
    ("takes 1 positional argument, and is handed 2: X, w", lambda p: p.df.stage(reads=[p.X, p.w])(one)),
    ("takes .rest; allowed: arguments that are named", lambda p: p.df.stage(reads=[p.X])(lambda *rest: None)),
    ("reads has a ndarray; allowed: datasets", lambda p: p.df.stage(reads=[np.zeros(3)])(one)),  # type: ignore[list-item]
    ("allowed: a list of datasets", lambda p: p.df.stage(reads=p.X)(one)),
    ("belongs to another Dataflow", lambda p: p.df.stage(reads=[Programs().X])(one)),
    ("to: 'w' is not valid", lambda p: p.df.scatter(reads=[p.X], to=p.w)(one)),
    ("allowed: a stage that Dataflow.scatter made", lambda p: p.df.gather(p.df.stage(reads=[p.X])(one))),
    ("into: <dataset X .*> has 3 partitions", lambda p: p.df.reduce(p.X, into=p.X)),
    ("partitions of X have shape .2,., small has .5,.",
     lambda p: p.df.reduce(p.X, into=p.df.single(np.zeros(5), name="small"))),
    ("op: 'add' is not valid", lambda p: p.df.reduce(p.X, into=p.s, op="add")),  # type: ignore[arg-type]
    ("src: <dataset w .*> has one value", lambda p: p.df.reduce(p.w, into=p.s)),
    ("plane: 'mpi' is not valid; allowed: inline, local, templates, central",
     lambda p: Dataflow(plane="mpi")),
    ("workers: 0 is not valid", lambda p: Dataflow(plane="inline", workers=0)),
    ("min_workers: 3 is not valid; allowed: a whole number from 1 to 2, the number of workers",
     lambda p: Dataflow(plane="inline", workers=2, min_workers=3)),
    ("transport: 'rdma' is not valid; allowed: auto, unix, tcp", lambda p: Dataflow(plane="inline", transport="rdma")),
    ("snapshot_every_s: 3 is not valid; allowed: None without snapshot_dir",
     lambda p: Dataflow(plane="inline", snapshot_every_s=3)),
    ("start_timeout_s: 0 is not valid; allowed: a number of seconds",
     lambda p: Dataflow(plane="inline", start_timeout_s=0)),
    ("lease_s: 0 is not valid", lambda p: Dataflow(plane="inline", lease_s=0)),
    ("partitions: True is not valid", lambda p: Dataflow(plane="inline", partitions=True)),
    ("arrays have .6, 5. rows", lambda p: p.df.partition((np.zeros(6), np.zeros(5)))),
    ("allowed: an array with rows", lambda p: p.df.partition([1, 2])),
    ("allowed: an array with rows", lambda p: p.df.partition(np.zeros(()))),
    ("an array of Python objects", lambda p: p.df.single(np.array([{}]))),
    ("2 shapes for 3 partitions", lambda p: p.df.empty([1, 2])),
    ("a number of rows, or a tuple", lambda p: p.df.empty((1.5,))),
    ("fill: .1, 2. is not valid", lambda p: p.df.empty(1, fill=[1, 2])),
    ("partitions and like are both stated", lambda p: p.df.empty(1, like=p.X, partitions=3)),
    ("like: <dataset w .*> is not valid", lambda p: p.df.empty(1, like=p.w)),
    ("values: 'str' is not valid", lambda p: p.df.objects("abc")),
    ("reads: None is not valid; allowed: a list of datasets", lambda p: p.df.stage(reads=None)(one)),  # type: ignore[arg-type]
    ("partitions: <class 'int'> is not valid", lambda p: p.df.empty(1, partitions=int)),  # type: ignore[arg-type]
    (r"shape: \(1180591620717411303424,\) is not valid; allowed: what an array can", lambda p: p.df.empty(1 << 70)),
    ("name: .* a string, or None", lambda p: p.df.partition(np.zeros(2), name=np.zeros(2))),  # type: ignore[arg-type]
    ("stage int: it is not known what <class 'int'> takes", lambda p: p.df.stage(writes=[p.X])(int)),
    ("load two-5 is called with one argument, the partition's index: .*'y'", lambda p: p.df.load(two)),
    ("load <lambda>-5 captures LONG_LIST, a list of 5000 items.*: make of the index",
     lambda p: p.df.load(lambda index: LONG_LIST[index])),
    ("values: object 1, a lock, cannot be copied .*Dataflow.load", lambda p: p.df.objects([1, threading.Lock()])),
    ("arrays: a masked array, whose mask would be lost",
     lambda p: p.df.partition(np.ma.masked_array([1, 2], [False, True]))),
    ("value: a masked array", lambda p: p.df.single(np.ma.masked_array([1, 2], [False, True]))),
    ("snapshot_every_s: 0 is not valid", lambda p: Dataflow(snapshot_dir="/tmp", snapshot_every_s=0)),
    ("is async", lambda p: p.df.stage(reads=[p.X])(coroutine)),
    ("stage one was declared|cannot be defined again as a signal",
     lambda p: (p.df.stage(reads=[p.s])(one), p.df.signal(on=p.s)(one))),
    ("dataset X has no value in the program itself", lambda p: bool(p.X)),
    ("dataset X has no value in the program itself", lambda p: np.asarray(p.X)),
    ("dataset X has no value in the program itself", lambda p: len(p.X)),
    ("dataset X has no value in the program itself", lambda p: p.X + 1),
    ("dataset X has no value in the program itself", lambda p: np.arange(6.0) + p.X),
    ("dataset X has no value in the program itself", lambda p: 2 @ p.X),
    ("dataset X has no value in the program itself", lambda p: p.X < 3),
    ("dataset X has no value in the program itself", lambda p: -p.X),
    ("dataset X has no value in the program itself", lambda p: p.X.__setitem__(0, 1.0)),
    (r"signal one is neither true nor false; was it to be called: one\(\)\?", lambda p: bool(p.df.signal(on=p.s)(one))),
    (r"write @df.stage\(reads=.*in front of the function", lambda p: p.df.stage(one)),
]  # fmt: skip


async def coroutine(x: Any) -> None: ...


@pytest.mark.parametrize(("message", "declare"), DECLARATIONS, ids=[message for message, _ in DECLARATIONS])
def test_a_declaration_that_cannot_be_is_refused(message: str, declare: Callable[[Programs], Any], p: Programs) -> None:
    with pytest.raises(InvalidProgram, match=message):
        declare(p)


def helper() -> Any:
    return LARGE_GLOBAL


def capturing(held: Any) -> Callable[..., Any]:
    return lambda x: held


def captures(p: Programs) -> list[tuple[str, Callable[..., Any]]]:
    """Functions that take along what they may not, and what the refusal says."""
    rows, words, odd = np.zeros(129), [f"{number:100}" for number in range(20)], {"a": lambda: 0}
    things = np.array([None])
    handle = p.df.stage(reads=[p.X], name="handle")(one)

    def default(x: Any, *, table: Any = rows) -> None: ...

    return [
        ("captures rows, an array of 1032 bytes", lambda x: rows.sum()),
        ("captures words, a list of 20 items and 2", lambda x: words),
        ("captures LARGE_GLOBAL, an array of 8192 bytes", lambda x: LARGE_GLOBAL.sum()),
        ("captures LONG_LIST, a list of 5000 items", lambda x: [LONG_LIST[i] for i in x]),
        ("captures LARGE_GLOBAL, an array", lambda x: helper()),
        ("captures table, an array", default),
        ("captures odd, which cannot be pickled", lambda x: odd),
        ("captures things, an array of Python objects", lambda x: things),
        ("captures handle: it is a stage", lambda x: handle()),
        ("captures held: it is a dataset", capturing(p.X)),
        ("captures held: it is the Dataflow", capturing(p.df)),
    ]


@pytest.mark.parametrize("number", range(11))
def test_a_closure_over_an_array_a_long_list_or_a_dataset_is_refused_by_name(number: int, p: Programs) -> None:
    message, function = captures(p)[number]
    with pytest.raises(InvalidProgram, match=message):
        p.df.stage(reads=[p.X], name="taker")(function)


COUNT = 0
COUNTS = [0]


def counts_globally(x: Any) -> None:
    global COUNT  # noqa: PLW0603
    COUNT += 1


def calls_one_that_counts(x: Any) -> None:
    counts_globally(x)


def changes_a_global(x: Any) -> None:
    COUNTS[0] += 1


def calls_one_that_changes(x: Any) -> None:
    if x[0] >= 0:
        changes_a_global(x)


def counter() -> Callable[..., Any]:
    n = 0

    def counts(x: Any) -> None:
        nonlocal n
        n += 1

    return counts


def deep_counter() -> Callable[..., Any]:
    n = 0

    def counts(x: Any) -> None:
        def add() -> None:
            nonlocal n
            n += 1

        add()

    return counts


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (counts_globally, "stage taker sets `global COUNT` in counts_globally"),
        (calls_one_that_counts, "stage taker sets `global COUNT` in counts_globally"),
        (counter(), "stage taker sets `nonlocal n` in counts"),
        (deep_counter(), "stage taker sets `nonlocal n` in counts"),
    ],
)
def test_a_stage_that_sets_names_outside_is_refused_when_it_is_declared(
    function: Callable[..., Any], message: str, p: Programs
) -> None:
    with pytest.raises(InvalidProgram, match=message):
        p.df.stage(reads=[p.X], name="taker")(function)


def test_a_stage_may_set_names_of_its_own_in_functions_within_it(p: Programs) -> None:
    n = 5

    @p.df.stage(writes=[p.X])
    def counts(x: Any) -> None:
        def within() -> int:
            n = 0

            def add() -> None:
                nonlocal n
                n += 1

            add()
            return n

        x[:] = within() + n

    def program() -> Any:
        counts()
        return p.X

    assert p.df.run(program).tolist() == [6.0] * 6


def changing(value: Any, change: Callable[[Any], Any]) -> Callable[..., Any]:
    def step(x: Any) -> None:
        change(value)

    return step


CHANGES: dict[str, Callable[[], Callable[..., Any]]] = {
    "list": lambda: changing([0], lambda held: held.append(1)),
    "dict": lambda: changing({}, lambda held: held.update(a=1)),
    "set": lambda: changing({1}, lambda held: held.clear()),
    "bytearray": lambda: changing(bytearray(2), lambda held: held.extend(b"x")),
    "array": lambda: changing(np.zeros(2), lambda held: held.fill(1)),
    "list in a tuple": lambda: changing((1, [0]), lambda held: held[1].append(1)),
    "what cannot be pickled": lambda: changing([0], lambda held: held.append(lambda: 0)),
    "generator of random numbers": lambda: changing(np.random.default_rng(1), lambda held: held.random()),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_stage_that_changes_what_it_captured_is_refused_by_name(kind: str, p: Programs) -> None:
    step = p.df.stage(writes=[p.X], name="step")(CHANGES[kind]())
    fine = p.df.stage(reads=[p.X], name="fine")(one)
    for _ in range(2):  # The second run does not go on with the change either.
        with pytest.raises(InvalidProgram, match="stage step changed value, which it captured"):
            run(p, step)
    run(p, fine)
    again = p.df.stage(writes=[p.X], name="step")(one)
    run(p, again)


def test_a_change_is_noticed_in_functions_that_a_stage_calls_and_leaves_the_programs_own(p: Programs) -> None:
    step = p.df.stage(reads=[p.X], name="step")(calls_one_that_changes)
    with pytest.raises(InvalidProgram, match="stage step changed COUNTS"):
        run(p, step)
    assert COUNTS == [0]


def test_a_change_is_noticed_by_the_defaults_of_parameters_and_the_functions_of_reduces(p: Programs) -> None:
    @p.df.stage(reads=[p.X])
    def step(x: Any, *, cache: Any = []) -> None:  # noqa: B006
        cache.append(1)

    seen: list[int] = []

    def add(left: Any, right: Any) -> Any:
        seen.append(1)
        return left + right

    with pytest.raises(InvalidProgram, match="stage step changed cache"):
        run(p, step)
    with pytest.raises(InvalidProgram, match="stage adds changed seen"):
        run(p, p.df.reduce(p.X, into=p.s, op=add, name="adds"))
    assert seen == []


def test_what_was_changed_before_a_stage_raised_is_refused_by_the_next_run(p: Programs) -> None:
    held = [0]

    @p.df.stage(reads=[p.X])
    def step(x: Any) -> None:
        held[0] += 1
        if held[0] == 2:
            raise KeyError(held[0])

    with pytest.raises(KeyError, match="2"):
        run(p, step)
    p.df.stage(reads=[p.X], name="other")(one)
    with pytest.raises(InvalidProgram, match="stage step changed held"):
        run(p, step)


def twice(x: Any) -> Any:
    return x * 2 if x.sum() > 4 else twice(x * 2)


TABLE = {"twice": twice}


def test_functions_that_a_stage_calls_may_call_themselves_and_stand_in_captured_dicts(p: Programs) -> None:
    def down(n: int) -> int:
        return n and down(n - 1)

    @p.df.stage(writes=[p.s])
    def step(s: Any) -> None:
        s[:] = TABLE["twice"](s + 1) + twice(s + 1) + down(3)

    def program() -> Any:
        step()
        return p.s

    assert p.df.run(program).tolist() == [16, 16]


def test_what_a_stage_captured_is_watched_after_it_was_pickled() -> None:
    value = pickle.loads(pickle.dumps(Watched("step", "names", {"a", "b", "c"})))
    assert (value.stage, value.name, value.has_changed()) == ("step", "names", False)
    value.value.add("d")
    assert value.has_changed()


def test_a_signal_that_returns_nothing_is_refused(p: Programs) -> None:
    @p.df.signal(on=p.s)
    def small(s: Any) -> Any:
        s.max() < 1  # noqa: B015  # A forgotten `return` would end every loop.

    with pytest.raises(InvalidProgram, match="signal small returned None; it has to return yes or no"):
        run(p, small)


@pytest.mark.parametrize("directory", [7, "", "{tmp}/file", "{tmp}/file/below"])
def test_a_directory_for_snapshots_that_cannot_be_written_is_refused_at_once(directory: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    if isinstance(directory, str):
        directory = directory.format(tmp=tmp_path)
    with pytest.raises(InvalidProgram, match=r"snapshot_dir: .* is not valid; allowed: a directory"):
        Dataflow("127.0.0.1:1", plane="local", partitions=1, snapshot_dir=directory)


def test_a_dataset_has_no_methods_of_arrays_in_a_program(p: Programs) -> None:
    with pytest.raises(AttributeError, match=r"dataset X has no sum: .* use a signal or return it"):
        p.X.sum()
    assert copy.copy(p.X).name == "X"


def test_the_default_plane_is_the_one_that_there_is() -> None:
    assert Dataflow(partitions=2).plane == "inline"


def test_small_arrays_lists_and_long_strings_travel_and_attributes_are_no_globals(p: Programs) -> None:
    few, text = [1, 2], "t" * 5000

    @p.df.stage(writes=[p.X])
    def fill(x: Any) -> None:
        holder = type("Holder", (), {"LARGE_GLOBAL": 0})
        x[:] = SMALL_GLOBAL.sum() + sum(few) + len(text) + holder.LARGE_GLOBAL

    def program() -> Any:
        fill()
        return p.X

    assert p.df.run(program).tolist() == [5006.0] * 6


def test_what_became_large_before_the_first_run_is_refused_then(p: Programs) -> None:
    table = [1]

    @p.df.stage(reads=[p.X])
    def look(x: Any) -> None:
        table[0]

    table.extend(range(5000))
    with pytest.raises(InvalidProgram, match="captures table"):
        p.df.run(look)


def run(p: Programs, *stages: Any) -> Any:
    def program() -> None:
        for stage in stages:
            stage()

    return p.df.run(program)


def test_a_write_to_what_is_only_read_raises_numpys_error_with_the_stage(p: Programs) -> None:
    @p.df.stage(reads=[p.X, p.w])
    def wrong(x: Any, w: Any) -> None:
        w[0] = 1

    with pytest.raises(ValueError, match="read-only") as caught:
        run(p, wrong)
    assert caught.value.__notes__ == [
        "in stage wrong, partition 0, call 0 of the program",
        "what is in reads (X, w) is read-only; a dataset that the stage changes stands in writes",
    ]


def test_arrays_within_tuples_and_lists_that_are_read_are_read_only_too(p: Programs) -> None:
    held = p.df.objects([(np.zeros(1), [np.zeros(1)], {"a": np.zeros(1)})])
    for number, pick in enumerate((lambda h: h[0], lambda h: h[1][0], lambda h: h[2]["a"])):

        def wrong(h: Any, *, pick: Any = pick) -> None:
            pick(h)[0] = 1

        with pytest.raises(ValueError, match="read-only"):
            run(p, p.df.stage(reads=[held], name=f"wrong-{number}")(wrong))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_a_changed_shape_or_dtype_is_refused(change: str, p: Programs) -> None:
    @p.df.stage(writes=[p.X])
    def wrong(x: Any) -> None:
        if change == "shape":
            x.shape = (2, 1)
        else:
            x.dtype = np.int64

    with pytest.raises(PartitionChanged, match=r"partition 0 of X was float64 of shape \(2,\) and became") as caught:
        run(p, wrong)
    assert caught.value.writers == "wrong"
    assert p.df.run(lambda: p.X).tolist() == [0, 1, 2, 3, 4, 5]


def test_another_shape_or_a_lossy_type_that_is_assigned_raises_numpys_error(p: Programs) -> None:
    @p.df.stage(writes=[p.X])
    def wrong(x: Any) -> None:
        x[:] = np.zeros(5)

    @p.df.stage(writes=[p.X])
    def lossy(x: Any) -> None:
        x += 1j

    for stage, message in ((wrong, "could not broadcast"), (lossy, "Cannot cast")):
        with pytest.raises((ValueError, TypeError), match=message):
            run(p, stage)


def test_an_exception_is_raised_as_itself_with_stage_partition_and_traceback(p: Programs) -> None:
    class Odd(Exception):
        pass

    @p.df.stage(reads=[p.X])
    def fine(x: Any) -> None: ...

    @p.df.stage(reads=[p.X])
    def fails(x: Any) -> None:
        if x[0] == 4:
            raise Odd("four")

    with pytest.raises(Odd, match="four") as caught:
        run(p, fine, fails)
    assert caught.value.__notes__ == ["in stage fails, partition 2, call 1 of the program"]
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails"
    run(p, fine)  # The Dataflow can be used on.


def test_a_stage_that_returns_a_value_is_refused(p: Programs) -> None:
    @p.df.stage(writes=[p.X])
    def returns(x: Any) -> Any:
        return x + 1

    with pytest.raises(StageReturned, match="a value of type ndarray") as caught:
        run(p, returns)
    assert "stage returns" in caught.value.__notes__[0]


def test_a_stage_called_outside_a_run_or_within_a_stage_is_refused(p: Programs) -> None:
    look = p.df.stage(reads=[p.X], name="look")(one)
    with pytest.raises(NotInRun, match="stage look was called outside a run"):
        look()
    with pytest.raises(NotInRun, match="barrier"):
        p.df.barrier()
    holder = {"stage": look}

    class Hides:
        def call(self) -> None:
            holder["stage"]()

    hidden = Hides()

    @p.df.stage(reads=[p.s])
    def nested(s: Any) -> None:
        hidden.call()

    with pytest.raises(NotInRun):
        run(p, nested)


def test_a_handle_of_a_stage_that_was_defined_again_is_refused(p: Programs) -> None:
    old = p.df.stage(reads=[p.X], name="look")(one)
    new = p.df.stage(reads=[p.X], name="look")(one)
    run(p, new)
    with pytest.raises(InvalidProgram, match="stage look was defined again"):
        run(p, old)


def test_parameters_are_scalars_that_the_stage_knows(p: Programs) -> None:
    @p.df.stage(reads=[p.X])
    def look(x: Any, *, rate: Any, kind: Any = "") -> None: ...

    bad: list[tuple[str, dict[str, Any]]] = [
        ("no parameter speed; it has: kind, rate", {"speed": 1}),
        ("is called without its parameter rate", {}),
        ("parameter rate of stage look is a ndarray", {"rate": np.zeros(3)}),
        ("parameter rate of stage look is a list", {"rate": [1]}),
        ("parameter kind of stage look is a str", {"rate": 1, "kind": "x" * 2000}),
    ]
    for message, parameters in bad:
        with pytest.raises(InvalidProgram, match=message):
            p.df.run(lambda parameters=parameters: look(**parameters))  # type: ignore[misc]
    p.df.run(lambda: look(rate=np.float64(1), kind=("a", 1, None)))
    with pytest.raises(InvalidProgram, match="called with arguments"):
        p.df.run(lambda: look(1))


def scattering(p: Programs) -> tuple[Any, Any]:
    @p.df.scatter(reads=[p.X], to=p.s)
    def send(x: Any) -> Any:
        yield 0, x

    @p.df.gather(send, writes=[p.s])
    def collect(chunks: Any, s: Any) -> None: ...

    return send, collect


def test_each_scatter_is_gathered_once_before_the_next_signal(p: Programs) -> None:
    send, collect = scattering(p)
    more = p.df.signal(on=p.s, name="more")(lambda s: True)
    for stages, message in [
        ((send,), "scatter send is called, and no gather takes its chunks"),
        ((send, send, collect), "scatter send is called again before a gather"),
        ((collect,), "gather collect is called, and scatter send was not"),
        ((send, more, collect), "scatter send is called, and no gather takes its chunks before the next signal"),
        ((send, collect, collect), "gather collect is called, and scatter send was not"),
    ]:
        with pytest.raises(InvalidProgram, match=message):
            run(p, *stages)
    run(p, send, collect, send, collect)


@pytest.mark.parametrize(
    ("yielded", "message"),
    [
        ([(1, 0)], "yields the destination 1; allowed: 0 to 0"),
        ([(-1, 0)], "yields the destination -1"),
        ([("a", 0)], "yields the destination 'a'"),
        ([(True, 0)], "yields the destination True"),
        ([5], "not 5"),
        (7, r"has to yield pairs \(destination, chunk\)"),
        (None, r"has to yield pairs \(destination, chunk\)"),
    ],
)
def test_a_scatter_yields_pairs_of_a_destination_and_a_chunk(yielded: Any, message: str, p: Programs) -> None:
    send = p.df.scatter(reads=[p.X], to=p.s, name="send")(lambda x: yielded)
    collect = p.df.gather(send, writes=[p.s], name="collect")(lambda chunks, s: None)
    with pytest.raises(InvalidProgram, match=message) as caught:
        run(p, send, collect)
    assert "in scatter send" in caught.value.__notes__[0]


def test_a_reduce_of_another_shape_is_refused(p: Programs) -> None:
    loaded = p.df.load(lambda index: np.zeros(3), partitions=2)
    add = p.df.reduce(loaded, into=p.s, name="add")
    with pytest.raises(InvalidProgram, match=r"reduce add folds arrays of shape \(3,\) into one of shape \(2,\)"):
        run(p, add)
    nothing = p.df.reduce(p.df.load(lambda index: np.zeros(0), partitions=2), into=p.s, name="nothing")
    with pytest.raises(InvalidProgram, match="all partitions are empty"):
        run(p, nothing)
    numbers, number = p.df.empty((), like=p.X), p.df.single(0.0)
    returning_nothing = p.df.reduce(numbers, into=number, op=lambda one, other: None, name="forgot")
    with pytest.raises(InvalidProgram, match="reduce forgot: op returned None; it has to return a value"):
        run(p, returning_nothing)


def test_a_load_that_fails_says_for_which_partition(p: Programs) -> None:
    loaded = p.df.load(lambda index: 1 // (1 - index), partitions=2, name="rows")
    with pytest.raises(ZeroDivisionError) as caught:
        p.df.run(lambda: loaded)
    assert caught.value.__notes__ == ["while partition 1 of rows was loaded"]


def test_runs_within_runs_declarations_within_runs_and_programs_that_are_none(p: Programs) -> None:
    stage = p.df.stage(reads=[p.X])(one)
    for message, program in [
        ("run was called within a run", lambda: p.df.run(lambda: None)),
        ("a dataset was declared within a run", lambda: p.df.single(0)),
        ("a stage was declared within a run", lambda: p.df.stage(reads=[p.X])(one)),
        ("generator or a coroutine", lambda: (x for x in "a")),
        ("allowed: a function without arguments", 5),
        ("belongs to another Dataflow", lambda: Programs().X),
        ("missing a required argument: 'n'; what it needs it may capture", lambda n: None),
        ("the program returned a stage; .* Was it to be called", lambda: {"stage": stage}),
    ]:
        with pytest.raises(InvalidProgram, match=message):
            p.df.run(program)  # type: ignore[arg-type]


def test_a_program_that_fails_leaves_no_calls_behind(p: Programs) -> None:
    @p.df.stage(writes=[p.s])
    def count(s: Any) -> None:
        s += 1

    def breaks() -> None:
        count()
        raise KeyError("mine")

    with pytest.raises(KeyError):
        p.df.run(breaks)
    assert p.df.run(lambda: p.s).tolist() == [0, 0]


def test_a_closed_dataflow_runs_no_more(p: Programs) -> None:
    with p.df:
        look = p.df.stage(reads=[p.X], name="look")(one)
    for use in (lambda: run(p, look), lambda: p.df.single(0), p.df.__enter__):
        with pytest.raises(InvalidProgram, match="closed"):
            use()
