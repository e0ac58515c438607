"""Numba: graph computations as compiled loops over compressed rows, one for each vertex with the edges that end there.

What vertices gather may be sums, counts, averages, least and greatest values of any message over vertex and edge.
"""

from __future__ import annotations

from frontends.workflow.engines.graph_scalars import ALWAYS, NUMPY_TYPES, Masked, holds, masked
from frontends.workflow.engines.graphs import INDENT, GraphEngine, GraphProgram, broken, only
from frontends.workflow.ir.dag import Dag, Function
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Type
from frontends.workflow.jobs.idioms import EDGE, GATHERED, VERTEX, Gathered, GraphLoop

COMPRESSED = '''\
@numba.njit
def compressed(target: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the links of each target start, and the links in the order of their targets."""
    starts = np.zeros(size + 1, np.int64)
    for one in target:
        starts[one + 1] += 1
    starts = np.cumsum(starts)
    free, order = starts.copy(), np.empty(len(target), np.int64)
    for link, one in enumerate(target):
        order[free[one]] = link
        free[one] += 1
    return starts, order
'''
_EXTREMES = (Function.MIN, Function.MAX)


class Numba(GraphEngine):
    name = "numba"
    packages = ("numba",)

    def program(self, job: Dag, graph: GraphLoop) -> GraphProgram:
        return _Program(job, graph)


class _Program(GraphProgram):
    imports = ("import numba",)

    def prepare(self) -> None:
        self.definitions += [COMPRESSED, self._kernel()]
        self.emit("starts, order = compressed(target, size)", "sender = sender[order]")
        for name in self.read_columns(EDGE):
            array = self.array(EDGE + name)
            self.emit(f"{array.values}, {array.there} = {array.values}[order], {array.there}[order]")
        if self.graph.own_where is not None:
            self.emit("own_slot = np.where(home < 0, len(keys), home)")

    def gather(self) -> None:
        graph = self.graph
        about_vertices = [one for one in graph.sent_where if only(VERTEX, one)]
        self.emit(f"sends = filled({self.sending(about_vertices)}, size, bool)")
        if graph.own_where is not None:
            self.emit(f"sends_own = filled({self.sending(graph.own_where)}, size, bool)")
        self.emit("received = np.zeros(size, np.int64)")
        for one in graph.gathered:
            if one.message is None:
                continue
            array = self.array(GATHERED + one.name)
            self.emit(f"{array.there} = np.zeros(size, np.int64)")
            if one.function is not Function.COUNT:
                self.emit(f"{array.values} = np.zeros(size, {NUMPY_TYPES[self._total_type(one)]})")
        self.emit(*broken("gather(", self._arguments(), ")"))
        for one in graph.gathered:
            array = self.array(GATHERED + one.name)
            if one.function is Function.COUNT:
                counts = "received" if one.message is None else array.there
                self.emit(f"{array.values}, {array.there} = {counts}, received > 0")
                continue
            if one.function is Function.AVG:
                self.emit(f"{array.values} = {array.values} / {array.there}")
            self.emit(f"{array.there} = {array.there} > 0")

    def _total_type(self, one: Gathered) -> Type:
        """The type of the array in which the values are brought together."""
        assert one.message is not None
        return one.message.type_in(self.schema)

    def _arguments(self) -> list[str]:
        names = ["starts", "sender", "sends", "received"]
        if self.graph.own_where is not None:
            names += ["own_slot", "sends_own"]
        if self._uses_key():
            names += ["key_values", "key_there"]
        for prefix in (VERTEX, EDGE):
            for name in self.read_columns(prefix):
                array = self.array(prefix + name)
                names += [array.values, array.there]
        for one in self.graph.gathered:
            if one.message is not None:
                array = self.array(GATHERED + one.name)
                names += [array.there] if one.function is Function.COUNT else [array.values, array.there]
        return names

    def _uses_key(self) -> bool:
        scalars = [*self.graph.sent_where, *(one.message for one in self.graph.gathered if one.message is not None)]
        scalars += [one.own for one in self.graph.gathered if one.own is not None]
        return any(VERTEX + self.graph.key in scalar.columns for scalar in scalars)

    def _kernel(self) -> str:
        lines = broken("def gather(", self._arguments(), "):")
        lines.append(f'{INDENT}"""What is sent along each link, brought together at its target."""')
        if self.graph.own_where is not None:
            lines += [
                f"{INDENT}for slot in range(len(sends_own)):",
                f"{INDENT * 2}if sends_own[slot]:",
                f"{INDENT * 3}target = own_slot[slot]",
                f"{INDENT * 3}received[target] += 1",
            ]
            columns = self._at("slot", "slot")
            for one in self.graph.gathered:
                lines += self._added(one, one.own, columns, INDENT * 3)
        lines += [
            f"{INDENT}for target in range(len(starts) - 1):",
            f"{INDENT * 2}for link in range(starts[target], starts[target + 1]):",
            f"{INDENT * 3}slot = sender[link]",
        ]
        mixed = tuple(one for one in self.graph.sent_where if not only(VERTEX, one))
        columns = self._at("slot", "link")
        tests = [text for text in holds(mixed, self.schema, columns, compiled=True) if text != ALWAYS]
        lines.append(f"{INDENT * 3}if {' and '.join(['sends[slot]', *tests])}:")
        lines.append(f"{INDENT * 4}received[target] += 1")
        for one in self.graph.gathered:
            lines += self._added(one, one.message, columns, INDENT * 4)
        return '@numba.njit(error_model="numpy")\n' + "\n".join(lines) + "\n"

    def _at(self, vertex: str, edge: str) -> dict[str, Masked]:
        columns = self.columns(at={VERTEX: f"[{vertex}]", EDGE: f"[{edge}]"})
        columns[VERTEX + self.graph.key] = Masked(f"key_values[{vertex}]", f"key_there[{vertex}]")
        return columns

    def _added(self, one: Gathered, message: Scalar | None, columns: dict[str, Masked], indent: str) -> list[str]:
        """Lines that add a message to what its target has gathered."""
        if message is None:
            return []
        array, text = self.array(GATHERED + one.name), masked(message, self.schema, columns, compiled=True)
        lines = []
        if text.there == "False":
            return []
        if text.there != ALWAYS:
            lines.append(f"{indent}if {text.there}:")
            indent += INDENT
        if one.function in _EXTREMES:
            lines.append(f"{indent}message = {text.value}")
            new, old = "message", f"{array.values}[target]"
            less, more = (new, old) if one.function is Function.MIN else (old, new)
            test = f"{less} < {more}"
            if self._total_type(one) is Type.DOUBLE:  # NaN is the greatest.
                test = f"{test} or ({more} != {more} and {less} == {less})"
            lines.append(f"{indent}if {array.there}[target] == 0 or {test}:")
            lines.append(f"{indent}{INDENT}{old} = message")
        elif one.function is not Function.COUNT:
            lines.append(f"{indent}{array.values}[target] += {text.value}")
        return [*lines, f"{indent}{array.there}[target] += 1"]


ENGINE = Numba()
