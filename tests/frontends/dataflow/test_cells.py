"""Cells of a notebook that run again: what they make takes the place of what they made before, and nothing goes on with
the old one unnoticed."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow, InvalidProgram
from frontends.dataflow.calls import Calls
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL
from frontends.dataflow.shipping import ProgramHere, pack_definition, pack_program, unpack_definition, unpack_program
from frontends.dataflow.stages import STALE_NAMED, Given
from frontends.dataflow.variables import ITEMS_MAX
from sparrow_py import LocalCluster
from tests.support.dataflow_led_world import LedWorld
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import World, run_three_times
from tests.support.suites import rest_after

SEEDS = st.integers(0, 1 << 30)
STEP = "@df.stage(writes=[w])\ndef step(w): w += 1"
PROGRAM = "def program():\n    step()\n    return w"
MADE_ANEW = r"stage step uses dataset .*\bw\b.*, which was made anew: run the cell that defines the stage again"


class Notebook:
    """Cells, which share their variables."""

    def __init__(self, *cells: str, **options: Any) -> None:
        self.variables: dict[str, Any] = {"np": np, "df": Dataflow(partitions=2, progress=False, **options)}
        self.run(*cells)

    def run(self, *cells: str) -> None:
        for cell in cells:
            exec(cell, self.variables)

    def __getitem__(self, name: str) -> Any:
        return self.variables[name]

    @property
    def answer(self) -> list[float]:
        """The numbers that the program returns, each once."""
        return np.unique(np.ravel(self.asked("df.run(program)"))).tolist()  # type: ignore[no-any-return]

    def asked(self, expression: str) -> Any:
        """The value of an expression in a cell."""
        return eval(expression, self.variables)


WAYS = {
    "a name": ("w = df.single(np.zeros(1), name='w')", "w"),
    "no name": ("w = df.single(np.zeros(1))", "w"),
    "a tuple": ("w, v = df.partition((np.zeros(2), np.zeros(2)))", "w"),
    "a named tuple": ("w, v = df.partition((np.zeros(2), np.zeros(2)), name='w')", "w"),
    "a replicated one": ("w = df.replicate(np.zeros(1))", "w"),
    "an empty one": ("w = df.empty(1)", "w"),
    "a load": ("w = df.load(lambda index: np.zeros(1))", "w"),
    "objects": ("w = df.objects([np.zeros(1), np.zeros(1)])", "w"),
    "a function": ("def made():\n    w = df.single(np.zeros(1))\n    return w, 7\nw, seven = made()", "w"),
    "a list": ("w = [df.single(np.zeros(1))]", "w[0]"),
    "a dict": ("w = {'a': df.single(np.zeros(1))}", "w['a']"),
    "an attribute": ("class Model: pass\nw = Model()\nw.a = df.single(np.zeros(1))", "w.a"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_stage_that_uses_a_dataset_which_was_made_anew_is_refused_until_its_cell_runs_again(way: str) -> None:
    make, expression = WAYS[way]
    step, program = STEP.replace("[w]", f"[{expression}]"), PROGRAM.replace("return w", f"return {expression}")
    notebook = Notebook(make, step, program)
    assert [notebook.answer, notebook.answer] == [[1], [2]]
    notebook.run(make)
    with pytest.raises(InvalidProgram, match=MADE_ANEW):
        notebook.answer  # noqa: B018
    notebook.run(step)
    assert notebook.answer == [1]
    notebook.run(step)
    assert notebook.answer == [2], "a stage that is defined again goes on with the data"


def test_a_name_that_is_stated_later_or_no_longer_makes_no_difference() -> None:
    for before, after in (("", ", name='w'"), (", name='w'", "")):
        notebook = Notebook(f"w = df.single(np.zeros(1){before})", STEP, PROGRAM)
        assert notebook.answer == [1]
        notebook.run(f"w = df.single(np.zeros(1){after})")
        with pytest.raises(InvalidProgram, match=MADE_ANEW):
            notebook.answer  # noqa: B018


def test_all_kinds_of_stages_are_refused_and_reductions_by_their_own_name() -> None:
    make = "x = df.partition(np.arange(4.0)); t = df.single(np.zeros(2)); w = df.single(np.zeros(1))"
    stages = {
        "scatter send uses": "@df.scatter(reads=[x], to=t)\ndef send(x): yield 0, x",
        "gather take uses": "@df.gather(send, writes=[w])\ndef take(chunks, w): w += 1",
        "reduce add uses dataset .*t": "add = df.reduce(x, into=t, name='add')",
        "signal more uses": "@df.signal(on=w)\ndef more(w): return True",
        "stage look uses": "@df.stage(reads=[w])\ndef look(w): pass",
    }
    notebook = Notebook(make, *stages.values())
    notebook.run(make)
    for (message, _), name in zip(stages.items(), ["send", "take", "add", "more", "look"], strict=True):
        with pytest.raises(InvalidProgram, match=message):
            notebook["df"].run(notebook[name])
    notebook.run("x = df.partition(np.arange(4.0))")
    with pytest.raises(InvalidProgram, match=r"reduce add uses dataset .*x"):
        notebook["df"].run(notebook["add"])


@pytest.mark.parametrize("runs_at", rest_after(1, "a worker", "the program's process"))
def test_all_stages_that_are_to_be_defined_again_are_named_at_once_and_no_others(runs_at: str) -> None:
    make = "w, x = df.single(np.zeros(1), name='w'), df.empty(1, name='x')"
    notebook = Notebook(
        make, STEP, "@df.scatter(reads=[x], to=w)\ndef send(x): yield 0, x",
        "@df.gather(send, writes=[w])\ndef take(chunks, w): pass", "add = df.reduce(x, into=w, name='add')",
        "one = df.stage(writes=[w])(lambda w: None)", "y = df.single(np.zeros(1))",
        "@df.stage(writes=[y])\ndef other(y): pass", "one = df.stage(writes=[w])(lambda w: None)",
    )  # fmt: skip
    notebook.run("w = df.single(np.zeros(1), name='w')")

    def refused() -> str:
        df, step = notebook["df"], notebook["take"]
        with pytest.raises(InvalidProgram) as caught:
            if runs_at == "a worker":
                df._see_variables(before_run=True)
                df._freeze()
                here = ProgramHere(unpack_definition(pack_definition(df._definition)))
                here.calling(unpack_program(pack_program(step, df), here), Calls(lambda block: True))
            else:
                df.run(step)
        return str(caught.value)

    assert "gather take uses dataset w, which was made anew" in refused()
    also = "Others that are to be defined again: {}"
    again = [also.format(f"stage step, scatter send, reduce add, stage <lambda>-{number}") for number in (5, 6, 7)]
    assert any(refused().endswith(text) for text in again), refused()
    notebook.run(STEP, "one = df.stage(writes=[w])(lambda w: None)")
    assert refused().endswith(also.format("scatter send, reduce add"))
    notebook.run("@df.scatter(reads=[x], to=w)\ndef send(x): yield 0, x", "add = df.reduce(x, into=w, name='add')")
    assert "Others" not in refused()


def test_of_many_stages_that_are_to_be_defined_again_some_are_named() -> None:
    make = "w = df.single(np.zeros(1), name='w')"
    notebook = Notebook(make, *(STEP.replace("step", f"step{number}") for number in range(STALE_NAMED + 3)), make)
    with pytest.raises(InvalidProgram, match=rf"stage step{STALE_NAMED}, and 2 more$"):
        notebook["df"].run(notebook["step0"])


def test_what_is_replaced_is_neither_named_nor_returned_any_more() -> None:
    notebook = Notebook("w = df.single(np.zeros(1), name='w'); x = df.partition(np.zeros(2))", "old = w")
    notebook.run("w = df.single(np.zeros(1), name='w')")
    for bad in (
        "df.stage(reads=[old])(lambda w: None)",
        "df.reduce(x, into=old)",
        "df.signal(on=old)(lambda w: True)",
        "df.scatter(reads=[x], to=old)",
        "df.empty(1, like=old)",
        "df.run(lambda: old)",
    ):
        with pytest.raises(InvalidProgram, match="dataset w was made anew: name the new one"):
            notebook.asked(bad)


def test_datasets_of_other_names_and_those_of_one_cell_stay() -> None:
    notebook = Notebook(
        "w = df.single(np.zeros(1), name='one')", STEP, "w = df.single(np.ones(1), name='other')",
        "all, steps = [], []\nfor k in range(3):\n    v = df.single(np.full(1, k))\n    all.append(v)\n"
        "    steps.append(df.stage(writes=[v])(lambda v: v.__iadd__(1) is None or None))",
        "def program():\n    step()\n    [one() for one in steps]\n    return [w, *all]",
    )  # fmt: skip
    assert np.concatenate(notebook.asked("df.run(program)")).tolist() == [1, 1, 2, 3]
    notebook.run("for one in all: pass", "one = df.single(np.zeros(1))")
    assert np.concatenate(notebook.asked("df.run(program)")).tolist() == [1, 2, 3, 4]


def test_datasets_of_one_name_in_a_loop_are_refused_when_they_are_used() -> None:
    notebook = Notebook("all = [df.single(np.zeros(1), name='w') for _ in range(2)]")
    with pytest.raises(InvalidProgram, match="dataset w was made anew"):
        notebook.asked("df.run(lambda: all)")


def test_fewer_datasets_of_a_tuple_leave_none_of_the_name_behind() -> None:
    make = "t = df.partition((np.zeros(2), np.zeros(2)), name='w')"
    notebook = Notebook(make, STEP.replace("[w]", "[t[1]]"), PROGRAM.replace("return w", "return t[0]"))
    notebook.run("t = df.partition((np.zeros(2),), name='w')")
    with pytest.raises(InvalidProgram, match="stage step uses dataset w-1"):
        notebook.answer  # noqa: B018


def test_a_gather_whose_scatter_sends_to_another_dataset_now_is_refused() -> None:
    send = "@df.scatter(reads=[x], to={})\ndef send(x): yield 0, x"
    notebook = Notebook(
        "x, y, z = (df.partition(np.arange(4.0), name=name) for name in 'xyz')", send.format("y"),
        "@df.gather(send, writes=[y])\ndef take(chunks, y): y[:] = sum(chunks)",
        "def program():\n    send()\n    take()\n    return y",
    )  # fmt: skip
    notebook.answer  # noqa: B018
    before = notebook["send"]
    notebook.run(send.format("z"))
    with pytest.raises(InvalidProgram, match=r"gather take takes the chunks of scatter send, .* to z now"):
        notebook.answer  # noqa: B018
    notebook.variables["before"] = before
    with pytest.raises(InvalidProgram, match="scatter send was defined again"):
        notebook.asked("df.gather(before)(lambda chunks: None)")


@pytest.mark.parametrize(
    ("kind", "of_one", "of_another"),
    [
        ("stage", "df.stage(writes=[w])(lambda w: w.fill(1))", "df.stage(writes=[w])(lambda w: w.fill(2))"),
        ("reduce", "df.reduce(x, into=w)", "df.reduce(x, into=w, op=np.maximum)"),
    ],
)
def test_a_program_that_kept_a_stage_without_a_name_is_told_that_its_variable_has_another(
    kind: str, of_one: str, of_another: str
) -> None:
    notebook = Notebook(
        "w, x = df.single(np.zeros(1)), df.empty(1)", f"step = {of_one}",
        "def program(step=step):\n    step()\n    return w",
    )  # fmt: skip
    notebook.answer  # noqa: B018
    notebook.run(f"step = {of_another}")
    with pytest.raises(InvalidProgram, match=f"{kind} .* was defined again"):
        notebook.answer  # noqa: B018


def test_globals_and_helpers_of_stages_are_those_of_the_run() -> None:
    notebook = Notebook(
        "rate = 1.0", "def helped(x): return x * rate", "w = df.single(np.zeros(1))",
        "@df.stage(writes=[w])\ndef step(w): w[:] = helped(1.0)", PROGRAM,
    )  # fmt: skip
    assert notebook.answer == [1]
    notebook.run("rate = 5.0")
    assert notebook.answer == [5]
    notebook.run("def helped(x): return x * rate * 2")
    assert notebook.answer == [10]
    notebook.run("rate = [1] * 10_000")
    with pytest.raises(InvalidProgram, match="stage step captures rate, a list of 10000 items"):
        notebook.answer  # noqa: B018


def test_variables_are_looked_at_without_running_code_of_the_user() -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    notebook = Notebook("w = df.single(np.zeros(1))", STEP, PROGRAM)
    notebook.variables.update(proxy=Proxy(), long=[notebook["w"]] * (ITEMS_MAX + 1), Out={3: notebook["w"]})
    notebook.run("w = df.single(np.zeros(1))")
    with pytest.raises(InvalidProgram, match=MADE_ANEW):
        notebook.answer  # noqa: B018


def test_names_are_strings() -> None:
    df = Dataflow(partitions=2, progress=False)
    for bad in (lambda: df.single(0, name=3), lambda: df.stage(name=["w"])(lambda: None)):  # type: ignore[arg-type]
        with pytest.raises(InvalidProgram, match=r"name.*: .*a string, or None"):
            bad()


# ---- memory ---------------------------------------------------------------------------------------


def test_values_of_a_replaced_dataset_are_forgotten_with_the_next_run() -> None:
    make = "w = df.single(np.zeros(1))"
    notebook = Notebook(make, STEP, PROGRAM)
    notebook.answer  # noqa: B018
    df, old = notebook["df"], notebook["w"]
    notebook.run(make, STEP)
    notebook.answer  # noqa: B018
    assert (old._spec.id, 0) not in df._runner.store and (notebook["w"]._spec.id, 0) in df._runner.store
    assert old._spec.source == df._definition.datasets[old._spec.id].source == Given(())


@pytest.mark.parametrize("plane", rest_after(1, "local", "templates", "central"))
@settings(max_examples=10)
@given(SEEDS)
def test_workers_that_come_yield_and_are_lost_change_no_answer_when_all_datasets_were_made_anew(
    plane: str, seed: int
) -> None:
    """Between runs. Workers keep nothing of those before, and what is run again has them as they were."""
    df, program = random_program(seed)
    chance = Random(seed)
    made: tuple[Any, ...] = (df, program, chance.randint(1, 3), Random(seed + 1))
    world = World(*made) if plane == "local" else LedWorld(*made, switches=ALL_ON if plane == "templates" else CENTRAL)
    world.run(moves=5, joins=1, crashes=1)
    replaced = len(df._definition.replaced)
    _, other = random_program(seed + 1, df=df)
    assert not replaced and df._definition.replaced
    world.call(other)
    run_three_times(world, other, chance)


# ---- on their way to workers ----------------------------------------------------------------------


def test_programs_are_refused_there_as_here() -> None:
    notebook = Notebook("w = df.single(np.zeros(1), name='w')", STEP, PROGRAM)
    df, old, program = notebook["df"], notebook["w"], notebook["program"]
    notebook.run("w = df.single(np.zeros(1), name='w')")
    df._freeze()
    here = ProgramHere(unpack_definition(pack_definition(df._definition)))
    with pytest.raises(InvalidProgram, match="stage step uses dataset w, which was made anew"):
        here.calling(unpack_program(pack_program(program, df), here), Calls(lambda block: True))
    returned = unpack_program(pack_program(lambda: old, df), here)()
    with pytest.raises(InvalidProgram, match="program: dataset w was made anew"):
        here.pack_returned(returned)


@pytest.mark.rest
def test_a_notebook_on_workers(small: LocalCluster, plane: str) -> None:
    make = "w = df.single(np.zeros(1)); x = df.partition(np.arange(4.0))"
    notebook = Notebook(make, STEP, PROGRAM, cluster=small, plane=plane)
    with notebook["df"]:
        assert [notebook.answer, notebook.answer] == [[1], [2]]
        notebook.run("w = df.single(np.zeros(1))")
        with pytest.raises(InvalidProgram, match=MADE_ANEW):
            notebook.answer  # noqa: B018
        notebook.run(STEP)
        assert notebook.answer == [1]
        assert notebook.asked("df.run(lambda: x)").tolist() == [0, 1, 2, 3]


def test_cells_of_ipython_replace_datasets_and_stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # A shell puts its own there, and hooks.
    monkeypatch.setattr("sys.displayhook", print)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        for cell in (
            "import numpy as np; from frontends.dataflow import Dataflow; df = Dataflow(partitions=2, progress=False)",
            "w = df.single(np.zeros(1))\nw",
            STEP,
            f"{PROGRAM}\nfirst = df.run(program)",
            "w = df.single(np.zeros(1))\nw",
        ):
            shell.run_cell(cell).raise_error()
        with pytest.raises(InvalidProgram, match=MADE_ANEW):
            shell.run_cell("df.run(program)", silent=True).raise_error()
        shell.run_cell(STEP + "\nsecond = df.run(program)").raise_error()
        assert shell.user_ns["first"].tolist() == shell.user_ns["second"].tolist() == [1]
    finally:
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)
