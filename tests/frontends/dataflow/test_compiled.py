"""Compiled stages answer what plain ones do, wherever and however their tasks run, and say what cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from frontends.dataflow import Dataflow, ExtraMissing, InvalidProgram, StageReturned, compiled, machine_code
from frontends.dataflow.binding import bind
from frontends.dataflow.blocks import Graph, Task
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Switches
from frontends.dataflow.local_core import LocalCore
from tests.support.dataflow_led_world import LedWorld
from tests.support.dataflow_world import World
from tests.support.suites import rest_after

PRIME = 1_000_003
ROOT = Path(__file__).parents[3]
SALT = 5


def plus_salt(value: int) -> int:
    """A function of the module, which is compiled with the stages that call it."""
    return value + SALT


def mix(x: Any, *, by: int = 1) -> None:
    for k in range(x.size):
        x[k] = (plus_salt(x[k] * 3) + by) % PRIME


def mix_in(y: Any, x: Any) -> None:
    for k in range(x.size):
        x[k] = (x[k] * 31 + y.sum() + k) % PRIME


def mix_copy(w: Any, x: Any) -> None:
    for k in range(x.size):
        x[k] = (x[k] * 7 + w[0]) % PRIME


def values(df: Dataflow) -> list[list[Any]]:
    return [[np.asarray(value) for value in df._runner.value(spec.id)] for spec in df._definition.datasets[1:]]


def assert_equal(one: Dataflow, other: Dataflow) -> None:
    for mine, theirs in zip(values(one), values(other), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype == b.dtype and np.array_equal(a, b)


# ---- answers -----------------------------------------------------------------------------------------


def of_all_kinds(*, is_compiled: bool) -> Dataflow:
    """Runs a program over arrays of several shapes and dtypes, copies and single values."""
    df = Dataflow(partitions=3, progress=False)
    chance = np.random.default_rng(4)
    X = df.partition(chance.normal(size=(8, 3)), name="x")  # Three, three and two rows.
    N = df.load(lambda index: np.arange(4 + index, dtype=np.float32 if index else np.int16), like=X, name="n")
    w, s = df.replicate(np.array([2.5, 0.5])), df.single(np.float64(1.0), name="s")
    flags = df.empty(2, like=X, fill=False)

    @df.stage(reads=[w], writes=[X, N], compiled=is_compiled)
    def scale(w: Any, x: Any, n: Any, *, rate: float, on: bool = True) -> None:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                if on:
                    x[i, j] = x[i, j] * w[0] - rate / (i + 1)
        for k in range(n.size):
            n[k] += 2

    @df.stage(reads=[X], writes=[flags], compiled=is_compiled)
    def look(x: Any, flags: Any) -> None:
        flags[0] = x[0, 0] > 0
        flags[1] = not flags[0]

    @df.stage(writes=[s], compiled=is_compiled)
    def grow(s: Any, *, by: complex) -> None:
        s[()] = s[()] * 2 + by.imag

    @df.stage(reads=[s], writes=[w], compiled=is_compiled)
    def copy(s: Any, w: Any) -> None:
        w[1] = s[()]

    def program() -> None:
        for number in range(4):
            scale(rate=number if number % 2 else number + 0.5)
            look()
            grow(by=2j)
            copy()
            scale(rate=np.float64(0.25), on=number != 1)

    df.run(program)
    return df


@pytest.mark.rest
def test_arrays_of_all_kinds_come_out_bit_by_bit_as_of_plain_stages() -> None:
    assert_equal(of_all_kinds(is_compiled=True), of_all_kinds(is_compiled=False))


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize("is_compiled", [False, True])
def test_values_without_an_address_are_compiled_too(is_compiled: bool) -> None:
    df = Dataflow(partitions=2, progress=False)
    pairs = df.load(lambda index: Pair(np.arange(3.0), np.full(3, index)), name="pairs")
    turned = df.load(lambda index: np.arange(6.0).reshape(2, 3).T, name="turned")

    @df.stage(reads=[pairs], writes=[turned], compiled=is_compiled)
    def add(pairs: Any, turned: Any, *, factor: float = 2.0) -> None:
        for k in range(3):
            turned[k, 1] += pairs.a[k] * pairs.b[k] * factor

    def program() -> Any:
        add()
        add(factor=10.0)
        return turned

    assert df.run(program).tolist() == [[0, 3], [1, 4], [2, 5], [0, 3], [1, 16], [2, 29]]


def doubling(*, is_compiled: bool) -> tuple[Dataflow, Callable[..., Any], Any]:
    df = Dataflow(partitions=2, progress=False)
    X = df.empty(1)

    @df.stage(writes=[X], compiled=is_compiled)
    def step(x: Any, *, by: float = 1.0) -> None:
        x[0] = x[0] * 2 + by

    return df, step, X


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_parameter_that_is_not_stated_has_its_default_though_the_run_before_stated_it(is_compiled: bool) -> None:
    df, step, X = doubling(is_compiled=is_compiled)
    df.run(lambda: step(by=5.0))
    assert df.run(lambda: step() or X).tolist() == [11, 11]


def test_parameters_may_change_their_type_from_run_to_run() -> None:
    df, step, X = doubling(is_compiled=True)
    for by in (1, 0.5, True, np.int8(3), 1):
        df.run(lambda by=by: step(by=by))
    assert df.run(lambda: X).tolist() == [31, 31]


def test_stages_of_one_name_that_captured_different_values_are_different() -> None:
    df = Dataflow(partitions=1, progress=False)
    X = df.empty(1)
    seen = []
    for captured in (1.0, 2.0):

        @df.stage(writes=[X], compiled=True, name="set")
        def put(x: Any) -> None:
            x[0] = captured  # noqa: B023

        seen.append(df.run(lambda: put() or X)[0])
    assert seen == [1, 2]


def test_a_task_that_is_bound_alone_is_called_by_itself_with_its_parameters() -> None:
    """As workers do it that are sent single tasks."""
    df, step, _ = doubling(is_compiled=True)
    df.run(step)
    runner = df._runner
    graph = Graph((step._spec.id,), ((1, 0),), {}, [Task(0, 1, 0)], [0], [()])
    bound = bind(df._definition, graph, runner.store, runner)
    bound.slots[0].update(by=7.0)
    ((function, arguments, _, _),) = bound.tasks
    assert function(*arguments) is None
    assert df._runner.value(1)[1].tolist() == [9]


# ---- workers -----------------------------------------------------------------------------------------


def random_loops(seed: int, *, is_compiled: bool) -> tuple[Dataflow, Callable[[], Any]]:
    """Runs of compiled stages between exchanges, a plain stage, copies that are written, and signals."""
    chance = Random(seed)
    df = Dataflow(partitions=chance.randint(2, 5), progress=False)
    X, Y = df.partition((np.arange(17), np.arange(17) * 5), name="x")
    total, count, w = df.single(np.zeros(1, dtype=np.int64)), df.single(np.zeros(1)), df.replicate(np.array([3]))
    one = df.stage(writes=[X], compiled=is_compiled, name="one")(mix)
    other = df.stage(writes=[Y], compiled=is_compiled, name="other")(mix)
    both = df.stage(reads=[Y], writes=[X], compiled=is_compiled, name="both")(mix_in)
    copies = df.stage(reads=[w], writes=[Y], compiled=is_compiled, name="copies")(mix_copy)
    plain = df.stage(writes=[X], name="plain")(mix)

    @df.scatter(reads=[X], to=X)
    def send(x: Any) -> Any:
        yield int(x.sum()) % partitions, x[:1] * 2

    @df.gather(send, writes=[Y])
    def take(chunks: Any, y: Any) -> None:
        y[:] = (y * 5 + sum(int(chunk[0]) for chunk in chunks)) % PRIME

    @df.stage(reads=[total], writes=[w])
    def write_copy(total: Any, w: Any) -> None:
        w[0] = (w[0] * 3 + total[0]) % PRIME

    @df.stage(writes=[count, total])
    def tick(count: Any, total: Any) -> None:
        count += 1
        total += 1

    @df.signal(on=count)
    def more(count: Any, *, until: int) -> Any:
        return count[0] < until

    partitions = df.partitions
    calls = [one, other, both, copies, one, both]
    bodies = [[chance.choice([*calls, *calls, plain, write_copy]) for _ in range(chance.randint(3, 9))] for _ in "ab"]

    def program() -> Any:
        for number, body in enumerate(bodies):
            while more(until=2 * (number + 1)):
                for position, stage in enumerate(body):
                    if stage in (one, other):
                        stage(by=position)
                    else:
                        stage()
                send()
                both()
                take()
                tick()

    return df, program


@pytest.fixture
def one_task_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains give way after each task."""
    monkeypatch.setattr(compiled, "RUN_NS", 0)


@pytest.mark.rest
def test_moves_joins_and_crashes_within_chains_change_nothing(
    one_task_a_call: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    settle = LocalCore._settle

    def counting(core: LocalCore) -> None:
        within = any(len(chain._tasks) - len(chain.left()) > 0 for chain in core._run.chains.values())  # type: ignore[attr-defined]
        held = len(core.held)
        settle(core)
        counts["left within a chain"] += within and len(core.held) < held

    monkeypatch.setattr(LocalCore, "_settle", counting)
    for seed in range(16):
        df, program = random_loops(seed, is_compiled=True)
        world = World(df, program, 3, Random(seed))
        world.run(moves=12, joins=1, snapshots=2, crashes=seed % 2)
        world.check_equal_to_inline()
        plain, same = random_loops(seed, is_compiled=False)
        plain.run(same)
        assert_equal(df, plain)
        counts["moves"] += world.moves
    assert counts["left within a chain"] > 10 and counts["moves"] > 50, counts


@pytest.mark.parametrize("switches", rest_after(1, ALL_ON, CENTRAL), ids=["templates", "central"])
def test_workers_that_are_commanded_run_compiled_stages_and_templates_chain_them(
    switches: Switches, one_task_a_call: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    step = CommandedCore.step

    def counting(core: CommandedCore) -> None:
        step(core)
        counts["chains"] += len(core._run.chains)

    monkeypatch.setattr(CommandedCore, "step", counting)
    for seed in range(6):
        df, program = random_loops(seed, is_compiled=True)
        world = LedWorld(df, program, 3, Random(seed), switches=switches)
        world.run(moves=12, joins=1, snapshots=2, crashes=seed % 2)
        world.check_equal_to_inline()
        plain, same = random_loops(seed, is_compiled=False)
        plain.run(same)
        assert_equal(df, plain)
    assert (counts["chains"] > 10) == (switches is ALL_ON), counts


def test_a_chain_counts_its_time_for_its_partition_and_gives_way_after_run_ns(one_task_a_call: None) -> None:
    df, step, _ = doubling(is_compiled=True)
    df._freeze()
    world = World(df, lambda: [step() for _ in range(5)] and None, 1, Random(1))
    (core,) = world.cores.values()
    world.next_block(0)
    used = []
    while not core.is_done():
        core._clock = iter(range(100)).__next__
        core.step()
        used.append(sum(core.take_used_ns().values()))
    assert used == [1] * 10  # A call runs one task, and then flags and polls are looked at.


# ---- what cannot be ----------------------------------------------------------------------------------


def test_an_exception_names_stage_partition_and_call_and_the_next_run_begins_anew() -> None:
    df = Dataflow(partitions=3, progress=False)
    X = df.partition(np.arange(3))

    @df.stage(writes=[X], compiled=True)
    def add(x: Any) -> None:
        x[0] += 1

    @df.stage(writes=[X], compiled=True)
    def check(x: Any) -> None:
        if x[0] == 4:
            x[0] = -100
            raise ValueError("four", 4)

    def program() -> Any:
        for _ in range(3):
            add()
            check()
        return X

    with pytest.raises(ValueError, match="four") as caught:
        df.run(program)
    assert caught.value.args == ("four", 4)
    assert caught.value.__notes__ == ["in stage check, partition 1, call 5 of the program"]
    assert df.run(lambda: X).tolist() == [3, -100, 2]
    assert df.run(lambda: [add(), add(), add(), check()] and X).tolist() == [6, -97, 5]


def refused(function: Callable[..., None], *, dtype: Any = float) -> Callable[[], Any]:
    df = Dataflow(partitions=2, progress=False)
    X, Y = df.partition(np.zeros(4, dtype), name="x"), df.empty(2, name="y")
    stage = df.stage(reads=[X], writes=[Y], compiled=True, name="bad")(function)
    return lambda: df.run(stage)


def writes_what_it_reads(x: Any, y: Any) -> None:
    x[0] = 1


def has_no_method(x: Any, y: Any) -> None:
    y[0] = x.no_such_method()


def imports(x: Any, y: Any) -> None:
    import math

    y[0] = math.pi


def returns_a_number(x: Any, y: Any) -> float:
    return float(x[0])


def does_nothing(x: Any, y: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (writes_what_it_reads, r"bad cannot be compiled; numba in line \d+ of .*'x\[0\] = 1': .*modify readonly array"),
        (imports, r"bad cannot be compiled; numba.*: Use of unsupported opcode \(IMPORT_NAME\)"),
        (has_no_method, r"bad cannot be compiled; numba in line \d+ of .*y\[0\] = x.no_such_method.*Unknown attribute"),
    ],
)
def test_what_numba_refuses_is_told_with_the_stage_and_its_line(function: Callable[..., None], message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        refused(function)()


def test_a_compiled_stage_returns_nothing() -> None:
    with pytest.raises(StageReturned, match="float64") as caught:
        refused(returns_a_number)()
    assert caught.value.__notes__ == ["in stage bad"]


@pytest.mark.parametrize("dtype", ["f2", ">f8"])
def test_an_array_of_a_dtype_that_numba_lacks_is_refused(dtype: str) -> None:
    with pytest.raises(InvalidProgram, match=f"bad cannot be compiled: numba has no arrays of dtype {np.dtype(dtype)}"):
        refused(does_nothing, dtype=dtype)()


@pytest.mark.parametrize("value", ["text", None, (1, 2), 1 << 70, 1 << 63, np.longdouble(1)])
def test_a_parameter_that_is_no_number_of_machines_is_refused_by_name(value: Any) -> None:
    df, step, _ = doubling(is_compiled=True)
    with pytest.raises(InvalidProgram, match=r"parameter by of stage step is .*; compiled stages take"):
        df.run(lambda: step(by=value))


def test_an_integer_that_fits_no_longer_is_refused_by_name() -> None:
    df, step, _ = doubling(is_compiled=True)
    with pytest.raises(InvalidProgram, match="parameter by of stage step is 1180591620717411303424, a int"):
        df.run(lambda: [step(by=1), df.barrier(), step(by=1 << 70)])
    with pytest.raises(InvalidProgram, match="parameter by of stage step is 1180591620717411303424, a int"):
        df.run(lambda: step(by=1 << 70))


def beyond(x: Any, y: Any) -> None:
    y[0] = x[x.size + 1]


def test_an_index_beyond_an_array_is_refused_if_numba_is_asked_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.BOUNDSCHECK", 1)
    with pytest.raises(IndexError) as caught:
        refused(beyond)()
    assert caught.value.__notes__ == ["in stage bad, partition 0, call 0 of the program"]


def test_whoever_switches_numba_off_has_plain_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.OFF_VARIABLE, "1")
    df, step, X = doubling(is_compiled=True)
    assert df.run(lambda: step() or X).tolist() == [1, 1]
    assert not any(stage.is_compiled for stage in df._definition.stages)


def test_compiled_is_true_or_false() -> None:
    with pytest.raises(InvalidProgram, match="compiled: 'yes' is not valid; allowed: True or False"):
        doubling(is_compiled="yes")  # type: ignore[arg-type]


def test_only_functions_that_are_written_in_python_are_compiled() -> None:
    df = Dataflow(partitions=1, progress=False)
    with pytest.raises(InvalidProgram, match="written in Python, as it is compiled"):
        df.stage(writes=[df.empty(1)], compiled=True)(np.negative)


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    df, step, _ = doubling(is_compiled=True)
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match=r"numba is not installed.*\[dataflow\]"):
        doubling(is_compiled=True)
    monkeypatch.delitem(sys.modules, "frontends.dataflow.machine_code")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ExtraMissing, match="numba is not installed"):
        df.run(step)  # As at a worker that was sent the program.


# ---- what is kept on disk ----------------------------------------------------------------------------

SECOND_PROCESS = """
import sys
sys.path.insert(0, {root!r})
from frontends.dataflow import machine_code
from tests.frontends.dataflow.test_compiled import doubling

df, step, X = doubling(is_compiled=True)
assert df.run(lambda: step() or X).tolist() == [1, 1]
(made,) = machine_code._entries._values.values()
assert sum(made.compiled.stats.cache_hits.values()) == 1, made.compiled.stats
assert not made.compiled.stats.cache_misses
"""


@pytest.mark.rest
def test_a_second_process_compiles_nothing() -> None:
    df, step, _ = doubling(is_compiled=True)
    df.run(step)
    done = subprocess.run(
        [sys.executable, "-c", SECOND_PROCESS.format(root=str(ROOT))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_entry_is_compiled_once_for_its_types(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    keep = machine_code.keep
    monkeypatch.setattr(machine_code, "keep", lambda source: made.append(source) or keep(source))
    for _ in range(2):
        df, step, _ = doubling(is_compiled=True)
        df.run(lambda step=step: [step(by=1.5), step(by=2.5)])
        df.run(lambda step=step: [step(by=1.5), step(by=2.5), step(by=0.5)])
    assert len(made) <= 1
