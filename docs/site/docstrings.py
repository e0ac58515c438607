"""An extension of griffe: docstrings and messages as this project writes them, for the pages of the reference.

Parameters and fields stand at the beginning of their lines, `name: text` or `name, name: text`, and what goes on is
indented. They become the items of a list, and a heading "Parameters" above them goes. Structs of msgspec get the
signature that msgspec gives them.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

HEADING = re.compile(r"^Parameters\n-{3,}\n", re.M)
ITEM = re.compile(r"^(\w+(?:, \w+)*): (.*(?:\n {4}.*)*)", re.M)


def parameters_of(function: griffe.Function) -> set[str]:
    """The names of its parameters."""
    return {parameter.name.lstrip("*") for parameter in function.parameters}


def names_of(found: griffe.Object) -> set[str]:
    """What its docstring may call an item: parameters and members."""
    if isinstance(found, griffe.Function):
        return parameters_of(found)
    names = set(found.members)
    if isinstance(init := found.members.get("__init__"), griffe.Function):
        names |= parameters_of(init)
    return names


def listed(text: str, names: set[str]) -> str:
    """A docstring in Markdown; `names` are what its items may be called."""
    pieces: list[str] = []
    end = 0
    text = HEADING.sub("", text)
    for found in ITEM.finditer(text):
        told = re.findall(r"\w+", found[1])
        if not names.issuperset(told):
            continue
        before = text[end : found.start()]
        gap = "" if not before.strip() or before.endswith("\n\n") else "\n"  # A list begins after an empty line.
        pieces += [before, gap, f"- {', '.join(f'`{name}`' for name in told)}: {found[2]}"]
        end = found.end()
    return "".join([*pieces, text[end:]])


def struct_signature(struct: griffe.Class) -> griffe.Function:
    """The `__init__` that msgspec gives a struct."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [one for one in struct.attributes.values() if one.annotation is not None]
    parameters = [griffe.Parameter(one.name, annotation=one.annotation, kind=kind, default=one.value) for one in fields]
    return griffe.Function("__init__", parameters=griffe.Parameters(griffe.Parameter("self", kind=kind), *parameters))


class Docstrings(griffe.Extension):
    """What griffe calls for everything that it has read."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if any(str(base).endswith("Struct") for base in cls.bases) and "__init__" not in cls.members:
            cls.set_member("__init__", struct_signature(cls))

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self.walk(pkg)

    def walk(self, found: griffe.Object) -> None:
        """Change the docstrings of all that is below."""
        if found.docstring is not None:
            found.docstring.value = listed(found.docstring.value, names_of(found))
        for member in found.members.values():
            if not isinstance(member, griffe.Alias):
                self.walk(member)
