"""Memory that processes of a machine hand to each other: all of it is there, none of it stays."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from frontends.dataflow import memory as memory_module
from frontends.dataflow.encoding import INLINE_BYTES_MAX, flat_bytes
from frontends.dataflow.errors import MemoryShort, ProtocolError
from frontends.dataflow.free_list import FreeList
from frontends.dataflow.free_memory import free_bytes
from frontends.dataflow.memory import ARENA_BYTES_MAX, SEALS, SPARED_BYTES, Memory
from tests.support.dataflow_peers import open_files

SIZE = INLINE_BYTES_MAX + 8


def test_an_array_has_a_file_of_its_own_that_goes_with_its_last_view() -> None:
    memory, before = Memory(), open_files()
    array = memory.empty((3, 1_000), np.float64)
    array[:] = 1.5
    assert memory.own_file(flat_bytes(array)) is not None
    assert open_files() == before + 1 and memory.mapped_bytes() >= array.nbytes
    view = array[1:, ::2]
    del array
    assert memory.mapped_bytes() and view.sum() == 1.5 * view.size
    del view
    assert memory.mapped_bytes() == 0 and open_files() == before


def test_small_arrays_and_those_of_objects_are_ordinary_ones() -> None:
    memory = Memory()
    for array in (memory.empty(4), memory.empty((), np.int8), memory.empty(10_000, object)):
        assert memory.own_file(flat_bytes(array) if not array.dtype.hasobject else np.zeros(1, np.uint8)) is None
    assert memory.mapped_bytes() == 0


def test_beyond_so_many_files_arrays_share_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "OWN_FILES_MAX", 3)
    memory, before = Memory(), open_files()
    arrays = [memory.empty(SIZE, np.uint8) for _ in range(100)]
    for number, array in enumerate(arrays):
        array[:] = number
    assert open_files() == before + 3
    assert [memory.own_file(array) is not None for array in arrays] == [True] * 3 + [False] * 97
    assert all((array == number).all() for number, array in enumerate(arrays))
    del array, arrays[:3]
    again = memory.empty(SIZE, np.uint8)
    assert memory.own_file(again) is not None, "a file that is free again is used"
    del arrays, again
    assert open_files() == before


def test_a_part_of_an_array_has_no_file_of_its_own() -> None:
    memory = Memory()
    array = memory.empty(4 * SIZE, np.uint8)
    assert memory.own_file(array) is not None
    assert memory.own_file(array[:SIZE]) is None and memory.own_file(array[SIZE:]) is None
    assert memory.own_file(array[::-1]) is None


def test_another_process_s_array_is_taken_over_without_a_copy() -> None:
    mine, others = Memory(), Memory()
    array = mine.empty(SIZE, np.uint8)
    array[:] = 7
    file = mine.own_file(array)
    assert file is not None
    taken = others.take_over(os.dup(file.descriptor), array.nbytes)
    array[5] = 8
    del array, file
    assert mine.mapped_bytes() == 0
    assert taken[5] == 8 and taken[6] == 7 and others.own_file(taken) is not None


@pytest.mark.parametrize("spoilt", ["no memory", "not sealed", "too small", "too large", "with holes"])
def test_memory_that_could_be_a_signal_later_is_not_taken_over(spoilt: str) -> None:
    before = open_files()
    if spoilt == "no memory":
        descriptor = os.open(os.devnull, os.O_RDWR)
    else:
        descriptor = os.memfd_create("spoilt", os.MFD_ALLOW_SEALING)
        size = {"too small": SIZE // 2, "too large": 2 * SIZE}.get(spoilt, SIZE)
        whole = -(-size // 4096) * 4096
        os.ftruncate(descriptor, whole)
        if spoilt != "with holes":
            os.posix_fallocate(descriptor, 0, whole)
        if spoilt != "not sealed":
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(ProtocolError, match=r"no memory|were announced"):
        Memory().take_over(descriptor, SIZE)
    assert open_files() == before


def test_want_of_memory_is_an_error_that_says_how_much_was_asked_and_how_much_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = open_files()
    with pytest.raises(MemoryShort, match=r"float64 of shape \(2000000,\) needs 16,000,000 bytes.*1,000,000 are free"):
        Memory(free=lambda: 1_000_000 + SPARED_BYTES).empty(2_000_000)

    def refuses(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", refuses)
    with pytest.raises(MemoryShort, match="needs 20,000 bytes"):
        Memory().empty(20_000, np.uint8)
    assert open_files() == before


def test_private_memory_is_there_as_a_whole_or_is_an_error_and_goes_with_its_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, memory = open_files(), Memory()
    monkeypatch.setattr(memory_module, "POPULATED_BYTES", 8_192)
    array = memory.private_bytes(SIZE, "a buffer")
    assert array.nbytes == SIZE and not array.any()
    array[:] = 7
    assert memory.own_file(array) is None and memory.mapped_bytes() >= SIZE and open_files() == before
    del array
    assert memory.mapped_bytes() == 0
    with pytest.raises(MemoryShort, match="a buffer needs 16,000,000 bytes"):
        Memory(free=lambda: 1_000_000 + SPARED_BYTES).private_bytes(16_000_000, "a buffer")
    for number, error in {errno.ENOMEM: MemoryShort, errno.EINVAL: None}.items():
        monkeypatch.setattr(memory_module, "_madvise", lambda *arguments, number=number: number)
        with contextlib.nullcontext() if error is None else pytest.raises(error, match="a buffer needs"):
            assert memory.private_bytes(SIZE, "a buffer")[-1] == 0, "kernels of old make pages as they are touched"
        assert memory.mapped_bytes() == 0


def test_free_memory_is_the_machine_s_or_the_control_group_s(tmp_path: Any) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 900 kB\nMemAvailable: 500 kB\n")
    assert free_bytes(meminfo, tmp_path) == 500 * 1024
    for name, text in {"max": "max", "current": "100000", "stat": "anon 1\ninactive_file 5000\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_bytes(meminfo, tmp_path) == 500 * 1024
    (tmp_path / "memory.max").write_text("150000\n")
    assert free_bytes(meminfo, tmp_path) == 55_000
    assert free_bytes() > 0


def test_arenas_that_are_free_again_are_given_back_but_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "OWN_FILES_MAX", 0)
    memory = Memory()
    arrays = [memory.empty(SIZE * 20, np.uint8) for _ in range(100)]
    most = memory.mapped_bytes()
    assert most >= 100 * SIZE * 20
    del arrays
    keep = memory.empty(SIZE, np.uint8)
    assert memory.mapped_bytes() < most and memory.mapped_bytes() <= ARENA_BYTES_MAX
    del keep


class Allocations(RuleBasedStateMachine):
    """Arrays come and go in any order; each keeps its contents, and memory is what they need."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(memory_module, "OWN_FILES_MAX", 4)
        gc.collect()
        self.files = open_files()
        self.memory = Memory()
        self.arrays: dict[int, np.ndarray[Any, Any]] = {}
        self.made = 0

    @rule(size=st.integers(INLINE_BYTES_MAX + 1, 300_000))
    def make(self, size: int) -> None:
        array = self.memory.empty(size, np.uint8)
        array[:] = self.made % 256
        self.arrays[self.made] = array
        self.made += 1

    @precondition(lambda self: self.arrays)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.arrays)))
        array = self.arrays.pop(number)
        assert (array == number % 256).all()

    @invariant()
    def files_are_those_of_few_arrays(self) -> None:
        assert open_files() - self.files == len(self.memory.files) <= 4
        needed = sum(array.nbytes for array in self.arrays.values())
        assert self.memory.mapped_bytes() >= needed

    def teardown(self) -> None:
        self.arrays.clear()
        assert not self.memory.files and open_files() == self.files
        self.patch.undo()


TestAllocations = pytest.mark.usefixtures("garbage_before")(Allocations.TestCase)
TestAllocations.settings = settings(max_examples=30, stateful_step_count=30)


@given(st.lists(st.one_of(st.integers(1, 400), st.floats(0, 1, exclude_max=True)), max_size=60))
def test_pieces_of_an_area_do_not_overlap_and_free_ones_become_one(steps: list[int | float]) -> None:
    pieces = FreeList(4_096)
    for step in steps:
        if isinstance(step, int):
            offset = pieces.take(step)
            assert offset is None or pieces.taken[offset] >= step
        elif pieces.taken:
            pieces.give(sorted(pieces.taken)[int(step * len(pieces.taken))])
        pieces.check_invariants()
    for offset in list(pieces.taken):
        pieces.give(offset)
    assert pieces.take(4_096) == 0
