"""Programs and definitions on their way to workers, there and back in this process."""

from __future__ import annotations

import pickle
import sys
from bdb import BdbQuit
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow, Dataset, InvalidProgram
from frontends.dataflow.advice import advised, refuse_breakpoint
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.kept_classes import KeptClasses
from frontends.dataflow.shipping import (
    RETURNED_BYTES_MAX,
    ProgramHere,
    pack_definition,
    pack_program,
    unpack_definition,
    unpack_program,
    unpack_returned,
)
from frontends.dataflow.stages import Given, Loaded

FACTOR = 3
ROWS = np.arange(1000.0)


def made() -> tuple[Dataflow, dict[str, Any]]:
    df = Dataflow(partitions=2, progress=False)
    X, total = df.partition(ROWS, name="X"), df.single(np.zeros(1), name="total")

    def scale(x: Any, *, by: float) -> None:
        x *= by * FACTOR

    named = {
        "X": X,
        "scale": df.stage(writes=[X], name="scale")(scale),
        "add": df.reduce(df.empty(1, like=X), into=total),
        "more": df.signal(on=total, name="more")(lambda total: total[0] > 1),
    }
    df._declare_barrier()
    df._freeze()
    return df, named


def called_by(df: Dataflow, program: Any) -> tuple[list[Block], Any, ProgramHere]:
    """The blocks that a program calls where it has been sent to, and what it returns."""
    here = ProgramHere(unpack_definition(pack_definition(df._definition)))
    blocks: list[Block] = []

    def run_block(block: Block) -> bool:
        blocks.append(block)
        return len(blocks) < 3

    return blocks, here.calling(unpack_program(pack_program(program, df), here), Calls(run_block)), here


def test_a_program_calls_the_same_stages_there_with_what_it_captured() -> None:
    df, named = made()
    scale, add, more, X = (named[name] for name in ("scale", "add", "more", "X"))

    def program() -> Any:
        while more():
            scale(by=1 / len(ROWS))
            add()
        df.barrier()
        return {"X": X, "rows": ROWS.shape}

    blocks, returned, here = called_by(df, program)
    names = [[here.definition.stages[stage].name for stage in block.stages] for block in blocks]
    reduce = [add._scatter.name, add.name]
    assert names == [["more"], ["scale", *reduce, "more"], ["scale", *reduce, "more"], ["(barrier)"]]
    assert blocks[1].parameters == ((0, {"by": 0.001}),)
    assert isinstance(returned["X"], Dataset) and returned["rows"] == (1000,)
    packed, datasets = here.pack_returned(returned)
    assert datasets == (X._spec.id,)
    assert unpack_returned(packed, df._datasets)["X"] is X


def test_a_class_whose_methods_call_stages_is_as_before_when_the_run_is_over() -> None:
    """Programs of planes that command workers are called in the process that made them."""
    df, named = made()

    class Steps:
        factor = 2.0

        def go(self) -> None:
            named["scale"](by=self.factor)

    def program() -> None:
        Steps().go()

    before = dict(vars(Steps))
    for _ in range(2):
        here = ProgramHere(unpack_definition(pack_definition(df._definition)))
        with KeptClasses() as kept:
            calls = Calls(lambda block: False)
            here.calling(unpack_program(pack_program(program, df), here, kept), calls)
        assert calls.blocks == 1 and dict(vars(Steps)) == before


def test_a_barrier_may_have_another_name_in_a_program() -> None:
    df, named = made()
    wait = df.barrier

    def program() -> None:
        named["scale"](by=1.0)
        wait()

    blocks, _, _ = called_by(df, program)
    assert [len(block.stages) for block in blocks] == [2]


def test_what_the_program_gave_its_datasets_stays_here() -> None:
    df, _ = made()
    data = pack_definition(df._definition)
    assert len(data) < ROWS.nbytes
    assert unpack_definition(data).datasets[1].source == Given(())


def test_functions_of_stages_travel_with_what_they_captured() -> None:
    df, _ = made()
    there = unpack_definition(pack_definition(df._definition))
    x = np.ones(2)
    scale = there.stages[0].function
    assert scale is not None and scale is not df._definition.stages[0].function
    scale(x, by=2.0)
    assert x.tolist() == [6.0, 6.0]


def test_contents_of_large_arrays_that_a_program_captured_are_refused_there() -> None:
    df, named = made()
    scale = named["scale"]
    for use in (lambda: scale(by=ROWS[0]), lambda: scale(by=np.sum(ROWS)), lambda: scale(by=ROWS.max())):
        with pytest.raises(InvalidProgram, match=r"uses contents of an array of shape \(1000,\)"):
            called_by(df, use)


def test_a_stage_that_was_defined_again_is_refused_there_as_here() -> None:
    df, named = made()
    before = named["scale"]
    df.stage(writes=[named["X"]], name="scale")(lambda x: None)
    df._freeze()
    with pytest.raises(InvalidProgram, match="stage scale was defined again"):
        called_by(df, lambda: before(by=1.0))


def test_datasets_of_another_dataflow_are_refused() -> None:
    df, _ = made()
    _, others = made()
    other = others["scale"]
    with pytest.raises(InvalidProgram, match="belongs to another Dataflow"):
        pack_program(lambda: other(by=1.0), df)


def test_what_cannot_be_pickled_is_named() -> None:
    df, named = made()
    generator = (number for number in range(3))
    with pytest.raises(InvalidProgram, match="the program cannot be sent to workers: cannot pickle 'generator'"):
        pack_program(lambda: next(generator), df)
    _, _, here = called_by(df, lambda: None)
    with pytest.raises(InvalidProgram, match="what the program returned cannot be pickled"):
        here.pack_returned(generator)
    df.stage(writes=[named["X"]], name="stuck")(lambda x: next(generator))
    df._freeze()
    with pytest.raises(InvalidProgram, match="the function of stuck cannot be sent to workers"):
        pack_definition(df._definition)


def test_a_program_that_returns_a_stage_or_is_a_generator_is_refused() -> None:
    df, named = made()
    scale = named["scale"]
    _, returned, here = called_by(df, lambda: scale)
    with pytest.raises(InvalidProgram, match="the program returned a stage"):
        unpack_returned(here.pack_returned(returned)[0], df._datasets)

    def generating() -> Any:
        yield scale(by=1.0)

    with pytest.raises(InvalidProgram, match="the program is a generator"):
        called_by(df, generating)


def test_returned_values_and_recorded_signals_have_a_maximum() -> None:
    df, named = made()
    more = named["more"]
    _, returned, here = called_by(df, lambda: {"x": bytes(RETURNED_BYTES_MAX - 100)})
    here.pack_returned(returned)
    with pytest.raises(InvalidProgram, match=r"returned: .* is 25,165,\d+ bytes, pickled; allowed: 25,165,824"):
        here.pack_returned({"x": bytes(RETURNED_BYTES_MAX)})
    calls = Calls(lambda block: block.number < 3, signals_max=3)
    program = unpack_program(pack_program(lambda: [more() for _ in range(3)], df), here)
    assert here.calling(program, calls) == [True] * 3
    calls = Calls(lambda block: True, signals_max=3)
    program = unpack_program(pack_program(lambda: [more() for _ in range(4)], df), here)
    with pytest.raises(InvalidProgram, match="signals: signal more is called after 3 others"):
        here.calling(program, calls)


def test_errors_of_programs_survive_pickling() -> None:
    error = InvalidProgram("program", None, "", "no")
    assert str(pickle.loads(pickle.dumps(error))) == "no"


def test_loads_travel_with_the_functions_of_their_module_that_they_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is beside the program, and not where workers are."""
    module = ModuleType("beside")
    exec("def rows(index): return base + index\nbase = 5\ndef load(index): return rows(index)\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "beside", module)
    with Dataflow(partitions=2) as df:
        loaded = df.load(module.load, name="X")
        df._freeze()
        data = pack_definition(df._definition)
    monkeypatch.delitem(sys.modules, "beside")
    source = unpack_definition(data).datasets[loaded._spec.id].source
    assert isinstance(source, Loaded) and source.function(1) == 6


def test_what_a_worker_lacks_is_said_in_a_note() -> None:
    with pytest.raises(ModuleNotFoundError) as missing:
        exec("import nowhere_to_be_found")
    (note,) = advised(missing.value).__notes__
    assert "has no module 'nowhere_to_be_found'" in note and "--python-path" in note
    with pytest.raises(InvalidProgram, match=r"breakpoint\(\) was called at a worker.* plane='inline'"):
        refuse_breakpoint()
    (note,) = advised(BdbQuit()).__notes__
    assert "plane='inline'" in note
    assert not hasattr(advised(ValueError()), "__notes__")
