"""Job-level constraints as text (§3.3): what is read, what holds of which node, what is refused and in which words."""

from __future__ import annotations

import pytest

from sparrow_py.constraints import VALUES_MAX, Constraint, check, holds, parse
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import StageSpec

NODE = {
    "zone": "eu",
    "memory_gb": "16",
    "kernel": "6.1",
    "note": "a b",
    "empty": "",
    "node": "ant:20504",
    "infinite": "inf",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zone == eu", Constraint("zone", "==", ("eu",))),
        ("  zone   ==   eu  ", Constraint("zone", "==", ("eu",))),
        ("zone in eu, us", Constraint("zone", "in", ("eu", "us"))),
        ("zone in eu,us,asia", Constraint("zone", "in", ("eu", "us", "asia"))),
        ("gpu exists", Constraint("gpu", "exists", ())),
        ("memory_gb >= 16", Constraint("memory_gb", ">=", ("16",))),
        ("kernel <= 6.1", Constraint("kernel", "<=", ("6.1",))),
        ("note == a b", Constraint("note", "==", ("a b",))),
        ("note == a, b", Constraint("note", "==", ("a, b",))),
        ("node == ant:20504", Constraint("node", "==", ("ant:20504",))),
    ],
)
def test_what_is_written_is_read_and_shown_as_it_was_meant(text: str, expected: Constraint) -> None:
    assert parse("where[0]", text) == expected
    assert parse("where[0]", str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zone == eu", True), ("zone == us", False), ("zone == EU", False), ("rack == eu", False),
        ("zone in us, eu", True), ("zone in us, asia", False), ("rack in us, eu", False),
        ("zone exists", True), ("empty exists", True), ("gpu exists", False),
        ("memory_gb >= 16", True), ("memory_gb >= 15.5", True), ("memory_gb >= 16.5", False),
        ("memory_gb <= 16", True), ("memory_gb <= 9", False), ("memory_gb >= 9", True), ("memory_gb == 16.0", False),
        ("zone >= 1", False), ("zone <= 1", False), ("empty >= 0", False), ("gpu >= 0", False), ("gpu <= 0", False),
        ("kernel >= 6", True), ("infinite >= 1e300", True), ("memory_gb <= inf", True), ("memory_gb >= -inf", True),
        ("node == ant:20504", True), ("note == a b", True),
    ],
)  # fmt: skip
def test_what_holds_of_a_node(text: str, expected: bool) -> None:
    assert holds(parse("where", text), NODE) is expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "zone", "zone ==", "zone = eu", "zone != eu", "== eu", "zone in", "zone in ,", "zone in eu,", "in eu",
        "gpu exists now", "exists", "memory_gb >=", "memory_gb > 3", "zone==eu", None, 3, ["zone == eu"],
        b"zone == eu", "zone in " + ", ".join(["x"] * (VALUES_MAX + 1)), "zone == " + "x" * 100_000,
    ],
)  # fmt: skip
def test_what_is_none_of_the_forms_is_refused_with_field_value_and_forms(text: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse("where[3]", text)
    error = caught.value
    assert error.field == "where[3]" and str(error).startswith("where[3]: ") and "'NAME == VALUE'" in error.allowed
    assert len(str(error)) < 500


@pytest.mark.parametrize("text", ["memory_gb >= much", "memory_gb <= nan", "memory_gb >= 1 6", "memory_gb >= 1,6"])
def test_a_bound_must_be_a_number(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse("where", text)
    assert caught.value.allowed == f"a number after {text.split()[1]}"


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("", "==", ("a",)), Constraint("a", "like", ("a",)), Constraint("a", "==", ()),
        Constraint("a", "==", ("a", "b")), Constraint("a", "in", ()), Constraint("a", "in", ("",)),
        Constraint("a", "exists", ("a",)), Constraint("a", ">=", ("many",)), Constraint("a", "<=", ()),
    ],
)  # fmt: skip
def test_what_comes_over_the_wire_is_checked_as_well(constraint: Constraint) -> None:
    with pytest.raises(InvalidRequest):
        check("where[0]", constraint)


def test_a_lone_string_is_no_list_of_constraints() -> None:
    with pytest.raises(InvalidRequest) as caught:
        StageSpec([b""], where="zone == eu").validate_stage()
    assert caught.value.field == "where" and caught.value.allowed == "a list"
    with pytest.raises(InvalidRequest) as caught:
        StageSpec([b""], where=["a exists", "zone"]).validate_stage("stages[2].")
    assert caught.value.field == "stages[2].where[1]"
