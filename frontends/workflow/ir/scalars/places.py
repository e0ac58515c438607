"""Where parts of scalar expressions stand in the text of a workflow, as far as the language has said so.

A place is kept with a node of a tree; it is no part of the expression: no text and no comparison of trees has it.
"""

from __future__ import annotations

from sqlglot import exp

from frontends.workflow.positions import Position

_KEY = "at"


def set_place(node: exp.Expr, at: Position | None) -> None:
    """The node stands there; nothing changes if that is not known."""
    if at is not None:
        node.meta[_KEY] = at


def keep_place(made: exp.Expr, of: exp.Expr) -> exp.Expr:
    """A node that is made of another stands where that does, unless it says so itself."""
    if _KEY in of.meta and _KEY not in made.meta:
        made.meta[_KEY] = of.meta[_KEY]
    return made


def place_of(*trees: exp.Expr | None) -> Position | None:
    """Where the first of these trees begins that says so."""
    for tree in trees:
        places = [node.meta[_KEY] for node in tree.walk() if _KEY in node.meta] if tree is not None else []
        if places:
            first: Position = min(places, key=lambda at: (at.line, at.column))
            return first
    return None


def set_places(tree: exp.Expr, begins: Position) -> None:
    """The tree, which sqlglot has parsed, is of a text of one line that begins there."""
    for node in tree.walk():
        if "start" in node.meta:
            _set_start(node, begins)


def _set_start(node: exp.Expr, begins: Position) -> None:
    column = node.parent if isinstance(node, exp.Identifier) and isinstance(node.parent, exp.Column) else node
    set_place(column, Position(begins.line, begins.column + node.meta["start"], begins.file))
