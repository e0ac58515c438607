"""Numbers of things, as people say them."""

from __future__ import annotations

import pytest

from sparrow_py.counted import agreeing, counted


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 slots are"), (1, "1 slot is"), (2, "2 slots are"), (2000, "2,000 slots are")]
)
def test_one_thing_is_one(count: int, said: str) -> None:
    assert counted(count, "slot", "are") == said
    assert counted(count, "slot") == said.rpartition(" ")[0]


@pytest.mark.parametrize(("verb", "of_one"), [("are", "is"), ("have", "has"), ("wait", "waits"), ("do", "does")])
def test_verbs_agree(verb: str, of_one: str) -> None:
    assert agreeing(1, verb) == of_one and agreeing(2, verb) == verb
