"""docs/python.md, "Reference", has every public name, and the signatures with their defaults as the code has them.

A section tells of names at the beginning of its lines, its items and the rows of its tables: `name(parameters)` of what
is called, `await …` before what is awaited, `name` of what is read. The parameters of a class are its fields, too.
"""

import ast
import dataclasses
import inspect
import re
import textwrap

import msgspec
import pytest

import sparrow_py
from sparrow_py.client import CallsWithOptions
from sparrow_py.futures.task_future import TaskFuture
from tests.support.documents import code_spans, headings, section

FUTURES, FUNCTIONS, INTERNAL = "Futures", "In a task", "Not for callers"
WITHOUT_SIGNATURE = {
    FUTURES, "Job", "AsyncJob", "ActorHandle", "AsyncActorHandle", "TaskReport", "JobReport", "TaskStatus",
    "NodeStatus",
}  # fmt: skip
"""Callers do not make these."""
NAMES = {name: getattr(sparrow_py, name) for name in sparrow_py.__all__}
CLASSES = {name: kind for name, kind in NAMES.items() if isinstance(kind, type)}
API = {name: kind for name, kind in CLASSES.items() if not issubclass(kind, BaseException)}
EVERYTHING = API | {FUTURES: TaskFuture}
PREFIXES = {"await ": inspect.iscoroutinefunction, "async for value in ": inspect.isasyncgenfunction}

subjects = re.compile(r"^(?:- |\| )?((?:`[^`\n]+`(?:, | and )?)+)", re.M).findall


def text_of(name: str) -> str:
    return section("docs/python.md", name)


def told(name: str) -> list[str]:
    """What a section tells of, as it stands there."""
    return [span.removeprefix(f"{name}.") for spans in subjects(text_of(name)) for span in code_spans(spans)]


def bare(span: str) -> str:
    """The name alone."""
    for prefix in PREFIXES:
        span = span.removeprefix(prefix)
    return span.partition("(")[0]


def names_told(name: str) -> set[str]:
    """All names that a section tells of, or another to which it leaves the rest."""
    others = re.findall(r"The other fields are those of `(\w+)`(?: and `(\w+)`)?", text_of(name))
    found = {bare(span) for span in told(name)}
    if name not in WITHOUT_SIGNATURE:
        found |= inspect.signature(API[name]).parameters.keys()
    return found.union(*(names_told(other) for pair in others for other in pair if other))


def public(kind: type) -> set[str]:
    """The names without an underscore that a class and its bases among ours have, or their code sets on `self`. What
    the standard library's bases have is theirs to tell of."""
    names: set[str] = set()
    for one in (one for one in kind.__mro__ if one.__module__.startswith("sparrow_py")):
        tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and type(node.ctx) is ast.Store]
        names |= {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}
        names |= vars(one).keys()
        if issubclass(one, msgspec.Struct):
            names |= set(one.__struct_fields__)
        elif dataclasses.is_dataclass(one):
            names |= {field.name for field in dataclasses.fields(one)}
    theirs = {name for one in kind.__mro__ if one.__module__ == "concurrent.futures._base" for name in vars(one)}
    return {name for name in names - theirs if not name.startswith("_")}


def not_for_callers(name: str) -> set[str]:
    """Those of its names that are said not to be part of the API."""
    owner = "futures" if name == FUTURES else f"`{name}`"
    found = re.search(rf"of {owner} ((?:`\w+`(?:, )?)+)", text_of(INTERNAL))
    return set(code_spans(found[1])) if found else set()


def signature(name: str, function: object, *, bound: bool) -> str:
    """`name(parameters)` with defaults and without types; what is bound has no `self`."""
    found = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [one.replace(annotation=one.empty) for one in found.parameters.values()]
    return name + str(found.replace(parameters=parameters[int(bound) :], return_annotation=found.empty))


def test_every_public_name_has_its_section() -> None:
    assert set(headings(text_of("Reference"), 3)) == {*EVERYTHING, FUNCTIONS, INTERNAL}


def test_every_public_function_is_told_of_with_its_parameters() -> None:
    functions = {name: one for name, one in NAMES.items() if name not in CLASSES}
    assert told(FUNCTIONS) == [signature(name, one, bound=False) for name, one in functions.items()]


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_public_method_and_field_is_told_of(name: str) -> None:
    hidden = not_for_callers(name)
    assert public(EVERYTHING[name]) - names_told(name) == hidden


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_is_called_has_the_parameters_and_defaults_of_the_code(name: str) -> None:
    kind = EVERYTHING[name]
    if name not in WITHOUT_SIGNATURE:
        assert told(name)[0] == signature(name, kind, bound=False)
    for span in told(name):
        member = getattr(kind, bare(span), None)
        if not inspect.isfunction(member):
            assert "(" not in span or bare(span) == name, f"{name} has no {span}"
            continue
        written = signature(bare(span), member, bound=True)
        prefix = next((prefix for prefix, holds in PREFIXES.items() if holds(member)), "")
        assert span == prefix + written


def test_views_of_a_client_have_what_is_said() -> None:
    line = next(line for line in text_of("Client").splitlines() if line.startswith("- `with_options"))
    assert public(CallsWithOptions) <= set(code_spans(line))
