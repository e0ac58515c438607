"""Sources of values: which there are in a command line, and the inputs that they make."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.command import sources
from frontends.command.sources import Source, combined, split_command
from sparrow_py.errors import InvalidRequest


def inputs(*words: str) -> list[tuple[str, ...]]:
    """The inputs of sources of words."""
    found = split_command(["command", *words])[1]
    return list(combined(found, [source.values for source in found]))


def test_without_sources() -> None:
    assert split_command(["echo", "::", ":::::", "a:::"]) == (("echo", "::", ":::::", "a:::"), [])


def test_words_and_files() -> None:
    assert split_command(["a", "b", ":::", "1", "2", "::::", "f", "-", "::::+", "g"]) == (
        ("a", "b"),
        [
            Source("source 1 (:::)", linked=False, values=("1", "2")),
            Source("source 2 (:::: f)", linked=False, file="f"),
            Source("source 3 (:::: -)", linked=False, file="-"),
            Source("source 4 (::::+ g)", linked=True, file="g"),
        ],
    )


def test_all_combinations_the_last_source_first() -> None:
    assert inputs(":::", "a", "b", ":::", "1", "2") == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]


def test_linked_sources_go_together_as_far_as_the_shorter() -> None:
    assert inputs(":::", "a", "b", ":::+", "1", "2", "3", ":::", "x") == [("a", "1", "x"), ("b", "2", "x")]


@given(st.lists(st.lists(st.text(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_inputs_are_the_product(lists: list[list[str]]) -> None:
    unlinked = [Source(f"source {number}", linked=False) for number, _ in enumerate(lists, 1)]
    assert list(combined(unlinked, lists)) == list(itertools.product(*lists))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([":::"], r"source 1 \(:::\): 'no values' .* at least one value"),
        ([":::", "a", ":::"], r"source 2 \(:::\): 'no values'"),
        (["::::"], r"source 1 \(::::\): 'no file' .* the name of a file"),
        ([":::+", "a"], "source 1: ':::\\+' .* ::: or ::::"),
        ([":::", "a"] * (sources.SOURCES_MAX + 1), "sources: '101 of them' .* at most 100"),
        ([":::", *"ab"] * 24, "inputs: '16777216 combinations of values' .* at most 10000000"),
    ],
)
def test_mistakes(words: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        inputs(*words)
