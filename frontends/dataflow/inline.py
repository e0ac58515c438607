"""Runs programs in this process: one worker that holds everything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from frontends.dataflow.binding import Bound, Outputs, bind, noted
from frontends.dataflow.blocks import Cache, Graph, Run, derive, run_ready
from frontends.dataflow.calls import Block
from frontends.dataflow.recording import Recorder
from frontends.dataflow.stages import DatasetKind, DatasetSpec, Definition, Loaded, StageKind
from frontends.dataflow.store import Store, first_value

_NEVER = 1 << 62


def _own(spec: DatasetSpec, value: Any) -> Any:
    """The value; of an array that was loaded a copy, as what the function returned may be, or share, another one's."""
    return value.copy() if isinstance(spec.source, Loaded) and type(value) is np.ndarray else value


def _never(now: int) -> int:
    return _NEVER


class InlineRunner:
    """Runs blocks one after the other."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.store = Store()
        self.used_ns: list[int] = [0]
        """CPU time of each slot, as far as no other thread runs."""
        self.tasks_run = 0
        self.recorder: Recorder | None = None
        """For a timeline."""
        self._bound: Cache[tuple[int, tuple[int, ...]], Bound] = Cache()
        self._loaded = 0
        self._dropped: set[int] = set()
        """Datasets whose values are forgotten."""
        self._run = Run([], [], [])  # type: ignore[arg-type]
        self._graph = Graph((), (), {})
        self._chunks: dict[tuple[int, int], dict[int, list[Any]]] = {}
        self._sources_left: dict[int, int] = {}
        self._told = False

    def load(self) -> None:
        """Give datasets that were declared since the last run their first values, and forget those of replaced ones."""
        datasets, replaced = self.definition.datasets, self.definition.replaced
        if len(self._dropped) < len(replaced):
            self._bound.clear()  # Tasks have the arrays.
            self._run = Run([], [], [])  # type: ignore[arg-type]
            for dataset in replaced.keys() - self._dropped:
                self.store.drop(dataset)
            self._dropped = set(replaced)
        while self._loaded < len(datasets):
            spec = datasets[self._loaded]
            copies = 1 if spec.kind is DatasetKind.REPLICATED else spec.partitions
            for index in range(0 if spec.id in replaced else copies):
                self.store.put((spec.id, index), _own(spec, first_value(spec, index)))
            self._loaded += 1

    def run_block(self, block: Block) -> bool:
        """Run a block; what its signal said, if it has one."""
        key = (self.definition.version, block.stages)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bind(block.stages)
            self._bound.put(key, bound)
        self._graph = bound.graph
        self._sources_left = {}
        self._run = run = bound.run(block.parameters)
        if len(self.used_ns) <= len(bound.graph.slots):
            self.used_ns = [0] * (len(bound.graph.slots) + 1)
        try:
            if self.recorder is None:
                run_ready(run, (), self.used_ns, time.perf_counter_ns, _never, _NEVER)
            else:
                self.recorder.run_ready(
                    block.number, bound.graph, run, (), self.used_ns, time.perf_counter_ns, _never, _NEVER
                )
        except BaseException as error:
            self._chunks.clear()
            noted(error, self.definition, bound, run.failed, block.first_call)
            raise
        assert not any(run.needs), "tasks are left that nothing releases"
        self.tasks_run += len(run.tasks)
        bound.check_unchanged(self.definition, self.store)
        return self._told

    def flush(self) -> None:
        """Have what was recorded told."""
        if self.recorder is not None:
            self.recorder.flush()

    def _bind(self, stages: tuple[int, ...]) -> Bound:
        counts = self.definition.group_partitions()
        slots = [(group, index) for group, partitions in counts.items() for index in range(partitions)]
        return bind(self.definition, derive(self.definition, stages, slots), self.store, self, in_chains=True)

    def value(self, dataset: int) -> list[Any]:
        """The partitions of a dataset; of a replicated one its value."""
        spec = self.definition.datasets[dataset]
        count = 1 if spec.kind is DatasetKind.REPLICATED else spec.partitions
        return [self.store.value((dataset, index)) for index in range(count)]

    # ---- what tasks made --------------------------------------------------------------------------

    def scattered(self, call: int, index: int, outputs: Outputs) -> None:
        for destination, chunks in outputs.items():
            self._chunks.setdefault((call, destination), {})[index] = chunks
        stage = self.definition.stages[self._graph.stages[call]]
        left = self._sources_left[call] = self._sources_left.get(call, stage.partitions) - 1
        if not left:
            gather = next(gather for gather, scatter in self._graph.sources.items() if scatter == call)
            partitions = self.definition.stages[self._graph.stages[gather]].partitions
            for partition in range(partitions):
                self._run.release(self._graph.at[gather, partition])

    def chunks(self, call: int, index: int) -> list[Any]:
        by_source = self._chunks.pop((self._graph.sources[call], index), {})
        return [chunk for source in sorted(by_source) for chunk in by_source[source]]

    def gathered(self, call: int, index: int) -> None:
        """Nothing is kept of a gather."""

    def signalled(self, call: int, value: bool) -> None:
        assert self.definition.stages[self._graph.stages[call]].kind in (StageKind.SIGNAL, StageKind.BARRIER)
        self._told = value

    def wrote(self, call: int, copies: Sequence[int]) -> None:
        """There is one copy."""

    def receive_copy(self, call: int, copy: int) -> None:
        raise AssertionError("one worker that holds everything receives nothing")
