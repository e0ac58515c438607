"""A DAG as a graph in the DOT language: an operator a node, loops as boxes around their bodies."""

from __future__ import annotations

from collections.abc import Mapping

from frontends.workflow.ir.dag import Dag, Operator, Scan, While
from frontends.workflow.ir.printing import printed_operator

LABEL_CHARS_MAX = 80
"""Characters of a line in a node."""


def dot(dag: Dag, groups: Mapping[str, str] | None = None) -> str:
    """The text of a digraph. groups: {relation: title} draws relations with the same title in one box."""
    lines = ["digraph workflow {", "  node [shape=box, fontname=sans];", "  rankdir=TB;"]
    boxes: dict[str, list[str]] = {}
    for operator in dag.operators:
        boxes.setdefault((groups or {}).get(operator.name, ""), []).append(operator.name)
    for number, (title, names) in enumerate(boxes.items()):
        drawn = [line for name in names for line in _node(dag.operator(name), "", name in dag.results)]
        lines += _box(f"cluster_{number}", title, drawn) if title else drawn
    lines += _edges(dag, "")
    return "\n".join([*lines, "}"]) + "\n"


def _node(operator: Operator, prefix: str, result: bool) -> list[str]:
    style = ", peripheries=2" if result else ", style=filled, fillcolor=lightgrey" if isinstance(operator, Scan) else ""
    drawn = [f"  {_node_id(prefix, operator.name)} [label={_quoted(_label(operator))}{style}];"]
    if not isinstance(operator, While):
        return drawn
    inside = f"{prefix}{_part(operator.name)}/"
    body = [line for one in operator.body.operators for line in _node(one, inside, one.name in operator.body.results)]
    body += _edges(operator.body, inside)
    for given, inner in zip(operator.inputs, operator.body.input_names, strict=True):
        body.append(f"  {_node_id(prefix, given)} -> {_node_id(inside, inner)} [style=dashed];")
    for one in operator.carried:
        body.append(f"  {_node_id(inside, one.following)} -> {_node_id(inside, one.input)} [constraint=false];")
    return drawn + _box(f"cluster_{inside}", operator.name, body)


def _box(name: str, title: str, lines: list[str]) -> list[str]:
    return [
        f"  subgraph {_quoted(name)} {{",
        f"    label={_quoted(title)};",
        *(f"  {line}" for line in lines),
        "  }",
    ]


def _edges(dag: Dag, prefix: str) -> list[str]:
    return [
        f"  {_node_id(prefix, name)} -> {_node_id(prefix, operator.name)};"
        for operator in dag.operators
        for name in operator.inputs
    ]


def _label(operator: Operator) -> str:
    """The relation's name, and under it what makes it."""
    text = printed_operator(operator).partition("\n")[0].partition(" = ")[2]
    return f"{operator.name}\n{text if len(text) <= LABEL_CHARS_MAX else text[: LABEL_CHARS_MAX - 1] + '…'}"


def _node_id(prefix: str, name: str) -> str:
    """prefix: of the loops around, each with `/` at its end."""
    return _quoted(prefix + _part(name))


def _part(name: str) -> str:
    """A name in which `/` is told apart from that between a loop and its body."""
    return name.replace("/", "//")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
