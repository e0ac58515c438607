"""SciPy: graph computations as products of sparse matrices with vectors.

Sums, averages and counts of messages that are a factor of the vertex times, or over, one of the edge are such products:
the matrix holds the edges' factors, a vector the vertices', and a mask says which of these send. Other messages, and
least and greatest values, are brought together by NumPy's functions, link by link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from frontends.workflow.engines.graph_scalars import ALWAYS, NUMPY_TYPES, Masked, holds, masked
from frontends.workflow.engines.graphs import GraphEngine, GraphProgram, broken, only
from frontends.workflow.ir.dag import Dag, Function
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import without_parentheses
from frontends.workflow.ir.types import Type
from frontends.workflow.jobs.idioms import EDGE, GATHERED, VERTEX, Gathered, GraphLoop

_FUNCTIONS = (Function.SUM, Function.AVG, Function.COUNT)

COUNTS = '''\
class Counts:
    """How many of the links of each target are from slots that send; computed again when these change.

    alike: a matrix that may have the same links.
    """

    def __init__(
        self, target: np.ndarray, sender: np.ndarray, size: int, alike: sparse.csr_array | None = None
    ) -> None:
        ones = np.ones(len(target), np.int64)
        same = alike is not None and alike.nnz == len(target)  # Fewer: links are left out, or several are one entry.
        places = (alike.indices, alike.indptr) if same else ((target, sender),)
        self.matrix = sparse.csr_array((ones, *places), (size, size))
        self.sends, self.counts = np.zeros(size, bool), np.zeros(size, np.int64)

    def of(self, sends: np.ndarray) -> np.ndarray:
        if not np.array_equal(sends, self.sends):
            self.sends, self.counts = sends, self.matrix @ sends.astype(np.int64)
        return self.counts
'''
SUMS = '''\
class Sums:
    """Sums of the values that slots send, times the factors of their links.

    A factor that is infinite or NaN would spoil the sums of those that send nothing: such links are added apart.
    """

    def __init__(self, target: np.ndarray, sender: np.ndarray, factors: np.ndarray, size: int) -> None:
        finite = np.isfinite(factors)
        among = chosen(finite, target, sender, factors)
        self.matrix = sparse.csr_array((among[2], (among[0], among[1])), (size, size))
        self.target, self.sender, self.factors = (one[~finite] for one in (target, sender, factors))

    def of(self, values: np.ndarray, sends: np.ndarray) -> np.ndarray:
        sums = self.matrix @ np.where(sends, values, 0)
        there = sends[self.sender]
        np.add.at(sums, self.target[there], values[self.sender[there]] * self.factors[there])
        return sums
'''


TOGETHER = '''\
def together(function: np.ufunc, start: object, size: int, *sent: tuple[np.ndarray, np.ndarray]) -> tuple:
    """What is sent to each slot, (targets, values), brought together, and how many there are."""
    target, values = (np.concatenate(parts) for parts in zip(*sent))
    found = np.full(size, start, values.dtype)
    function.at(found, target, values)
    return found, np.bincount(target, minlength=size)
'''


@dataclass(frozen=True, slots=True)
class Factors:
    """A message as a product. vertex, edge: None for 1; over: the edge's factor divides."""

    vertex: Scalar | None
    edge: Scalar | None
    over: bool = False


def factors(message: Scalar) -> Factors | None:
    """The message as a product; None if it is none."""
    if message.constant or only(VERTEX, message):
        return Factors(message, None)
    if only(EDGE, message):
        return Factors(None, message)
    tree = without_parentheses(message.tree())
    if not isinstance(tree, exp.Mul | exp.Div):
        return None
    left, right = (Scalar(without_parentheses(one)) for one in (tree.this, tree.args["expression"]))
    if only(VERTEX, left) and only(EDGE, right):
        return Factors(left, right, over=isinstance(tree, exp.Div))
    if only(EDGE, left) and only(VERTEX, right) and isinstance(tree, exp.Mul):
        return Factors(right, left)
    return None


class Scipy(GraphEngine):
    name = "scipy"
    packages = ("scipy",)
    modules = ("scipy.sparse",)

    def program(self, job: Dag, graph: GraphLoop) -> GraphProgram:
        return _Program(job, graph)


def _product(graph: GraphLoop, one: Gathered) -> bool:
    """Whether what is gathered is a product of a matrix and a vector."""
    apart = all(only(VERTEX, condition) or only(EDGE, condition) for condition in graph.sent_where)
    linear = one.message is None or factors(one.message) is not None
    return apart and graph.own_where is None and linear and one.function in _FUNCTIONS


class _Program(GraphProgram):
    imports = ("from scipy import sparse",)

    def prepare(self) -> None:
        self._products = [one for one in self.graph.gathered if _product(self.graph, one)]
        self._by_link = [one for one in self.graph.gathered if one not in self._products]
        self._counts_links = False
        self._keep_edges()
        if self.graph.own_where is not None:
            self.emit("own_slot = np.where(home < 0, len(keys), home)")
        for one in self._products:
            if one.message is not None:
                self._prepare(one, one.message)
        if self._products or not self._by_link:
            self._count_links()

    def _define(self, text: str) -> None:
        if text not in self.definitions:
            self.definitions.append(text)

    def _keep_edges(self) -> None:
        """Lines that leave out the edges along which nothing can be sent."""
        about_edges = tuple(one for one in self.graph.sent_where if only(EDGE, one))
        tests = [text for text in holds(about_edges, self.schema, self.columns(), compiled=False) if text != ALWAYS]
        if not tests:
            return
        self.emit(
            f"kept = filled({' & '.join(tests)}, len(sender), bool)", "sender, target = sender[kept], target[kept]"
        )
        for name in self.read_columns(EDGE):
            array = self.array(EDGE + name)
            self.emit(f"{array.values}, {array.there} = {array.values}[kept], {array.there}[kept]")

    def _prepare(self, one: Gathered, message: Scalar) -> None:
        """Lines that make the matrices of what is a product."""
        parts, variable = factors(message), self.array(GATHERED + one.name).values
        assert parts is not None
        there, factor = ALWAYS, "1"
        if parts.edge is not None:
            text = masked(parts.edge, self.schema, self.columns(), compiled=False)
            there, factor = text.there, f"1.0 / {text.value}" if parts.over else text.value
        links = ["target", "sender", f"filled({factor}, len(sender), {self._dtype(message)})"]
        counts = "received_counts"
        if there != ALWAYS:
            self.emit(f"there = filled({there}, len(sender), bool)")
            links = [f"*chosen(there, {', '.join(links)})"]
            counts += " if there.all() else Counts(target[there], sender[there], size)"
        sums = ""
        if one.function is not Function.COUNT:
            self._define(SUMS)
            sums = f"{variable}_sums"
            self.emit(*broken(f"{sums} = Sums(", [*links, "size"], ")"))
        self._count_links(sums)
        self.emit(f"{variable}_counts = {counts}")

    def _count_links(self, sums: str = "") -> None:
        """A line that makes the counts of all links, unless there is one. sums: a variable of sums along links."""
        if not self._counts_links:
            self._counts_links = True
            self._define(COUNTS)
            alike = [f"{sums}.matrix"] if sums else []
            self.emit(f"received_counts = Counts({', '.join(['target', 'sender', 'size', *alike])})")

    def _dtype(self, message: Scalar) -> str:
        return NUMPY_TYPES[message.type_in(self.schema)]

    # ---- an iteration ------------------------------------------------------------------------

    def gather(self) -> None:
        about_vertices = [one for one in self.graph.sent_where if only(VERTEX, one)]
        self.emit(f"sends = filled({self.sending(about_vertices)}, size, bool)")
        if self._by_link:
            self._received_by_link()
        else:
            self.emit("received = received_counts.of(sends)")
        for one in self.graph.gathered:
            array = self.array(GATHERED + one.name)
            if one.message is None:
                self.emit(f"{array.values}, {array.there} = received, received > 0")
            elif one in self._products:
                self._gather(one, one.message)
            else:
                self._gather_by_link(one, one.message)

    def _gather(self, one: Gathered, message: Scalar) -> None:
        array, parts = self.array(GATHERED + one.name), factors(message)
        assert parts is not None
        value, sends = "1", "sends"
        if parts.vertex is not None:
            text = masked(parts.vertex, self.schema, self.vertex_columns(), compiled=False)
            value, sends = text.value, "sends" if text.there == ALWAYS else f"sends & {text.there}"
        counts = f"{array.values}_counts.of({sends})"
        if one.function is Function.COUNT:
            self.emit(f"{array.values}, {array.there} = {counts}, received > 0")
            return
        self.emit(f"{array.there} = {counts}")
        sums = f"{array.values}_sums.of(filled({value}, size, {self._dtype(message)}), {sends})"
        self.emit(f"{array.values} = {sums}" + (f" / {array.there}" if one.function is Function.AVG else ""))
        self.emit(f"{array.there} = {array.there} > 0")

    def _at_links(self) -> dict[str, Masked]:
        columns = self.columns(at={VERTEX: "[sender]"})
        columns[VERTEX + self.graph.key] = Masked("key_values[sender]", "key_there[sender]")
        return columns

    def _received_by_link(self) -> None:
        graph = self.graph
        mixed = tuple(one for one in graph.sent_where if not (only(VERTEX, one) or only(EDGE, one)))
        tests = [text for text in holds(mixed, self.schema, self._at_links(), compiled=False) if text != ALWAYS]
        self.emit(f"on = {' & '.join(['sends[sender]', *tests])}", "received = np.bincount(target[on], minlength=size)")
        if graph.own_where is not None:
            self.emit(f"sends_own = filled({self.sending(graph.own_where)}, size, bool)")
            self.emit("received += np.bincount(own_slot[sends_own], minlength=size)")

    def _gather_by_link(self, one: Gathered, message: Scalar) -> None:
        self._define(TOGETHER)
        array, type_ = self.array(GATHERED + one.name), message.type_in(self.schema)
        sent = [self._sent(message, "on", "target", self._at_links(), "len(sender)")]
        if one.own is not None:
            sent.append(self._sent(one.own, "sends_own", "own_slot", self.vertex_columns(), "size"))
        function, start = _TOGETHER.get((one.function, type_), ("np.add", "0"))
        arguments = [function, start, "size", *sent]
        self.emit(*broken(f"{array.values}, {array.there} = together(", arguments, ")"))
        if one.function is Function.COUNT:
            self.emit(f"{array.values}, {array.there} = {array.there}, received > 0")
            return
        if one.function is Function.AVG:
            self.emit(f"{array.values} = {array.values} / {array.there}")
        self.emit(f"{array.there} = {array.there} > 0")

    def _sent(self, message: Scalar, mask: str, target: str, columns: Mapping[str, Masked], size: str) -> str:
        text = masked(message, self.schema, columns, compiled=False)
        mask = mask if text.there == ALWAYS else f"{mask} & {text.there}"
        return f"({target}[{mask}], filled({text.value}, {size}, {self._dtype(message)})[{mask}])"


_TOGETHER = {
    (Function.MIN, Type.DOUBLE): ("np.fmin", "np.nan"),  # NaN is the greatest.
    (Function.MAX, Type.DOUBLE): ("np.maximum", "-np.inf"),
    (Function.MIN, Type.INTEGER): ("np.minimum", "np.iinfo(np.int64).max"),
    (Function.MAX, Type.INTEGER): ("np.maximum", "np.iinfo(np.int64).min"),
    (Function.MIN, Type.BOOLEAN): ("np.logical_and", "True"),
    (Function.MAX, Type.BOOLEAN): ("np.logical_or", "False"),
}

ENGINE = Scipy()
