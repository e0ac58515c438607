"""The docstrings of public names, of which the site's reference is made, tell of every parameter and field."""

import ast
import inspect
import re
import sys
from functools import cache
from itertools import pairwise

import pytest

import simulator
import sparrow_py
from docs.site import source

PUBLIC = {f"{room.__name__}.{name}": getattr(room, name) for room in (sparrow_py, simulator) for name in room.__all__}
PUBLIC = {name: one for name, one in PUBLIC.items() if inspect.isclass(one) or inspect.isfunction(one)}
CLASSES = {name: one for name, one in PUBLIC.items() if inspect.isclass(one)}
OURS = ("sparrow_py", "simulator", "loadgen")
LIKE = {
    "sparrow_py.AsyncClient": "Client",
    "sparrow_py.CallOptions": "StageSpec",
    "sparrow_py.SlurmCluster": "SSHCluster",
}
"""Whose parameters are those of another class, which the docstring names."""
NOT_MADE_BY_CALLERS = {
    "sparrow_py.ActorHandle", "sparrow_py.AsyncActorHandle", "sparrow_py.AsyncJob", "sparrow_py.Job",
    "sparrow_py.StoredValue", "sparrow_py.TaskStatus",
}  # fmt: skip
items_of = re.compile(r"^(\w+(?:, \w+)*): ", re.M).findall


@cache
def classes_of(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, as they are written."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def told_below(kind: type) -> set[str]:
    """The fields below which a string tells of them."""
    body = classes_of(kind.__module__)[kind.__name__].body
    fields = [field for field, text in pairwise(body) if isinstance(text, ast.Expr)]
    return {one.target.id for one in fields if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


def told(kind: type) -> set[str]:
    """What the docstrings of a class and its bases, and strings below their fields, tell of."""
    ours = [one for one in kind.__mro__ if one.__module__.startswith(OURS)]
    items = [names for one in ours for names in items_of(inspect.cleandoc(one.__doc__ or ""))]
    return {name for names in items for name in names.split(", ")}.union(*map(told_below, ours))


def parameters_of(kind: type) -> set[str]:
    """What a caller gives it; nothing for an exception that is made of its message."""
    if issubclass(kind, BaseException) and not inspect.isfunction(kind.__init__):
        return set()
    return set(inspect.signature(kind).parameters)


@pytest.mark.parametrize("name", CLASSES)
def test_every_parameter_is_told_of(name: str) -> None:
    kind = CLASSES[name]
    assert kind.__doc__
    if name in LIKE:
        assert f"`{LIKE[name]}`" in kind.__doc__
    elif name not in NOT_MADE_BY_CALLERS:
        assert parameters_of(kind) - told(kind) == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_and_method_tells_of_its_parameters(name: str) -> None:
    """In its docstring, or in that of another that it names."""
    for key, member in vars(PUBLIC[name]).items() if name in CLASSES else [(name, PUBLIC[name])]:
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if (
            inspect.isfunction(function)
            and not key.startswith(("_", "on_"))
            and key not in source.not_for_callers(name.rpartition(".")[2])
        ):
            assert function.__doc__, f"{name}.{key}"
            if "See `" not in " ".join(function.__doc__.split()):
                words = set(re.findall(r"\w+", function.__doc__))
                words |= {f"{word}s" for word in words} | {word.removesuffix("s") for word in words}
                missing = set(inspect.signature(function).parameters) - words - {"self", "cls"}
                assert not missing, f"{name}.{key}"
