"""Files of problems: what is written is read again, changes make the problem that they describe, and what is wrong is
named with its line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from io import BytesIO

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow import check, dimacs
from scheduler.flow.problem import Problem, ProblemError
from tests.support.flow_problems import KNOWN, chains, feasible_problems, file_of, integers, oracle_cost, oracle_solve

SIX = "".join(dimacs.write(KNOWN[0].problem))


def problems(text: str) -> list[Problem]:
    """Those of a file."""
    return [iteration.problem for iteration in dimacs.read(BytesIO(text.encode()))]


def same(first: Problem, second: Problem) -> bool:
    """Whether two problems have the same arrays."""
    pairs = ((getattr(first, field.name), getattr(second, field.name)) for field in fields(Problem))
    return all(one.dtype == other.dtype and np.array_equal(one, other) for one, other in pairs)


def error_of(text: str | bytes) -> str:
    """What is wrong with a file."""
    with pytest.raises(ProblemError) as caught:
        list(dimacs.read(BytesIO(text.encode() if isinstance(text, str) else text)))
    return str(caught.value)


# ---- what is written is read ---------------------------------------------------------------------------------------


@given(feasible_problems())
def test_a_problem_that_is_written_is_read_as_it_was(problem: Problem) -> None:
    assert same(dimacs.read_problem("".join(dimacs.write(problem)).encode()), problem)


def test_a_large_problem_is_read_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimacs, "CHUNK_LINES", 1000)
    problem = quincy_graph(40).problem
    assert same(dimacs.read_problem("".join(dimacs.write(problem)).encode()), problem)


@pytest.mark.parametrize(
    "way", ["a 1 2 0 3 -4\n", "a  1 2 0 3 -4\n", "a\t1 2 0 3 -4\r\n", "a +1 02 0 3 -4 1", "a 1 2 0 3 -4 0 "]
)
def test_lines_may_be_written_in_several_ways(way: str) -> None:
    problem = dimacs.read_problem(f"c a comment\n\np min 2 1\nn 2 -1 3\nn 1 1 1\n{way}".encode())
    wanted = Problem(*(integers([value]) for value in (0, 1, -4, 3, 0)), integers([1, -1]))
    assert same(problem, wanted)


@settings(max_examples=200)
@given(chains())
def test_changes_that_are_written_make_the_same_problems(chain: list[Problem]) -> None:
    found = problems(file_of(chain))
    assert len(found) == len(chain)
    assert all(same(one, other) for one, other in zip(found, chain, strict=True))


def test_what_keeps_no_number_cannot_be_written_as_a_change() -> None:
    problem = KNOWN[0].problem
    with pytest.raises(ProblemError, match="fewer nodes or arcs"):
        list(dimacs.write_changes(problem, dimacs.read_problem(b"p min 2 0")))
    with pytest.raises(ProblemError, match="arc 0 has other ends"):
        list(dimacs.write_changes(problem, replace(problem, tail=problem.head, head=problem.tail)))


# ---- what changes mean ---------------------------------------------------------------------------------------------

FIVE = """\
p min 6 5
n 1 1 1
n 2 1 1
n 6 -2 3
a 1 3 0 1 2
a 2 3 0 1 5
a 2 4 0 1 9
a 3 6 0 1 0
a 4 6 0 1 0
c EOI
"""
"""Tasks 1 and 2, machines 3 and 4; 5 has no arcs; the sink is 6."""


def costs(text: str) -> list[int]:
    return [oracle_cost(problem) for problem in problems(text)]


def test_a_task_comes_and_the_sink_takes_it_unasked() -> None:
    assert costs(f"{FIVE}n 7 1 1\na 7 5 0 1 1 0\na 5 6 0 1 0 0\nc EOI\n") == [11, 12]


def test_a_node_takes_the_lowest_free_number() -> None:
    text = f"{FIVE}r 5\nc EOI\nd 1 0 2 1\na 0 4 0 1 2\nc between\na 0 3 0 1 2\nx 4 6 0 2 0\nc EOI\nn 5 2\nc EOI\n"
    found = problems(text)
    assert found[2].supply.tolist() == [1, 1, 0, 0, 1, -3]
    assert found[2].tail[-2:].tolist() == [4, 4]
    assert [oracle_cost(problem) for problem in found[:3]] == [11, 11, 13]
    assert found[3].supply.tolist() == [1, 1, 0, 0, 2, -4]


def test_a_node_that_is_removed_takes_its_arcs_and_its_supply_along() -> None:
    after = problems(f"{FIVE}r 1\nc EOI\nn 1 1\nc EOI\n")
    assert costs(f"{FIVE}r 1\nc EOI\n") == [11, 5]
    assert after[1].supply.tolist() == [0, 1, 0, 0, 0, -1]
    assert after[2].supply.tolist() == [1, 1, 0, 0, 0, -2]
    assert after[2].capacity.tolist() == [0, 1, 1, 1, 1]


def test_a_node_that_is_removed_and_comes_again_at_once_has_only_its_new_arcs() -> None:
    after = problems(f"{FIVE}r 1\nn 1 1 1\na 1 4 0 1 3\nc EOI\n")[1]
    assert after.capacity.tolist() == [0, 1, 1, 1, 1, 1]
    assert oracle_cost(after) == 8


def test_an_arc_changes_and_one_of_capacity_0_is_removed() -> None:
    assert costs(f"{FIVE}x 2 4 0 1 4\nc EOI\nx 2 3 0 0 0 0 5\nx 2 4 0 1 3 0 4\nc EOI\n") == [11, 6, 5]


def test_the_old_cost_tells_parallel_arcs_apart() -> None:
    second = "x 1 3 0 1 1 0 7\nc EOI\n"
    third = "x 1 3 0 0 1 0 1\nx 1 3 0 1 8 0 2\nc EOI\n"
    text = f"{FIVE}a 1 3 0 1 7\nc EOI\n{second}{third}x 1 3 0 1 3\nc EOI\n"
    assert [problem.cost[[0, 5]].tolist() for problem in problems(text)[1:]] == [[2, 7], [2, 1], [8, 1], [3, 1]]


def test_of_alike_arcs_each_is_changed_once() -> None:
    text = f"{FIVE}a 1 3 0 1 2\nc EOI\nx 1 3 0 1 2 0 2\nx 1 3 0 4 6 0 2\nc EOI\n"
    assert problems(text)[2].capacity[[0, 5]].tolist() == [1, 4]


def test_the_only_node_that_takes_anything_in_is_the_sink() -> None:
    text = SIX + "c EOI\nn 1 3\nc EOI\n"
    assert problems(text)[1].supply.tolist() == [3, 0, 0, 0, 0, -3]


def test_a_sink_whose_supply_is_stated_takes_that() -> None:
    assert error_of(f"{FIVE}n 1 2\nn 6 -2\nc EOI\n") == "line 13: supplies add up to 1; they must add up to 0"
    assert costs(f"{FIVE}n 1 0\nn 6 -1\nc EOI\n") == [11, 5]


def test_several_nodes_that_take_something_in_have_to_be_told() -> None:
    text = "p min 3 2\nn 1 2\nn 2 -1\nn 3 -1\na 1 2 0 3 1\na 1 3 0 3 1\nc EOI\n"
    assert error_of(text + "n 1 3\nc EOI\n") == "line 9: supplies add up to 1; they must add up to 0"
    assert costs(text + "n 1 3\nn 3 -2\nc EOI\n") == [2, 3]


def test_nothing_is_read_after_the_end_of_the_file() -> None:
    assert len(problems(f"{FIVE}c EOS\nnonsense\n")) == 1


def test_problems_come_as_soon_as_they_are_complete() -> None:
    class Pipe(BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(size)
            assert line != b"stop\n"
            return line

    found = dimacs.read(Pipe(f"{FIVE}x 1 3 0 1 9\nc EOI\nstop\n".encode()))
    assert next(found).more
    assert oracle_solve(next(found).problem).cost == 18


# ---- what is wrong -------------------------------------------------------------------------------------------------

P = "p min 2 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file ends before the line `p min NODES ARCS`"),
        ("c EOI\n", "line 1: c EOI comes before the line `p min NODES ARCS`"),
        ("c EOS\n", "line 1: c EOS comes before the line `p min NODES ARCS`"),
        ("a 1 2 0 1 1\n", "line 1: `a` comes before the line `p min NODES ARCS`"),
        ("p max 2 1\n", "line 1: the problem is 'max'; allowed is min"),
        ("p\n", "line 1: the problem is ''; allowed is min"),
        ("p min 2\n", "line 1: the fields are 1; allowed are NODES ARCS"),
        ("p min -1 2\n", "line 1: NODES is '-1'; allowed is a whole number from 0 to 4,194,304"),
        ("p min 2 99999999\n", "line 1: ARCS is '99999999'; allowed is a whole number from 0 to 33,554,432"),
        (P + P, "line 2: there is a second line p"),
        (P + "q 1\n", "line 2: it begins with 'q'; allowed are c, p, n, a, x, r, d"),
        (P + "\x1b[2J\n", "line 2: it begins with '\\x1b[2J'; allowed are c, p, n, a, x, r, d"),
        (P + "n 3 1\n", "line 2: ID is 3; allowed are 1 to 2"),
        (P + "n 1 1\nn 1 2\n", "line 3: ID is 1, whose supply line 2 has stated"),
        (P + "n 1 one\n", "line 2: SUPPLY is 'one'; allowed is a whole number from -4,294,967,295 to 4,294,967,295"),
        (P + "n 1 1 4\n", "line 2: TYPE is '4'; allowed is a whole number from 0 to 3"),
        (P + "n 1\n", "line 2: the fields are 1; allowed are ID SUPPLY [TYPE]"),
        (P + "a 1 2 0 1\n", "line 2: the fields are 4; allowed are TAIL HEAD LOW CAP COST [TYPE]"),
        (P + "a 1 2 0 1e3 1\n", "line 2: CAP is '1e3'; allowed is a whole number from -999,999,999,999,999,999 to"),
        (P + f"a 1 2 0 {'9' * 99} 1\n", f"line 2: CAP is '{'9' * 30}'…; allowed is a whole number"),
        (P + "a 1 3 0 1 1\n", "line 2: HEAD is 3; allowed are 1 to 2"),
        (P + "a 0 2 0 1 1\n", "line 2: TAIL is 0; allowed are 1 to 2"),
        (P + "a 1 1 0 1 1\n", "line 2: HEAD is 1, its TAIL; it must be another node"),
        (P + "a 1 2 0 -1 1\n", "line 2: CAP is -1; allowed are 0 to 4,294,967,295"),
        (P + "a 1 2 -1 1 1\n", "line 2: LOW is -1; allowed are 0 to 1"),
        (P + "a 1 2 2 1 1\n", "line 2: LOW is 2; allowed are 0 to 1"),
        (P + "a 1 2 0 1 -5\na 2 1 0 1 5\n", "line 3: there is an arc more than the 1 that p announces"),
        (P + "n 1 1\nn 2 -1\n", "line 3: the graph ends after 0 of the 1 arcs that p announces"),
        (P + "n 1 1\nn 2 -2\na 1 2 0 1 1\n", "line 4: supplies add up to -1; they must add up to 0"),
        (P + "a 1 2 0 1 900000000000000000\n", "line 2: COST is 900,000,000,000,000,000; with 2 nodes allowed"),
        ("p min 2 2\na 1 2 0 1 -5\na 2 1 0 1 4\n", "line 3: the costs of the cycle "),
        ("p min 0 1\na 1 2 0 1 1\n", "line 2: TAIL is 1; none is allowed"),
        (P + "x 1 2 0 1 1\n", "line 2: `x` is a change; the graph before it must end with `c EOI`"),
        ("c " + "x" * 70_000, "line 1: it has more than 65,536 bytes"),
        (FIVE + "x 1 3 0 1 2\n", "line 12: the file ends without `c EOI` after line 11"),
        (FIVE + "a 1 4 0 1 2\nc EOS\n", "line 12: c EOS comes without `c EOI` after line 11"),
        (FIVE + "x 1 4 0 1 2\nc EOI\n", "line 11: there is no arc from 1 to 4"),
        (FIVE + "x 1 3 0 1 2 0 7\n", "line 11: OLDCOST is 7; of the arcs from 1 to 3 the costs are 2"),
        (FIVE + "a 1 3 0 1 8\nx 1 3 0 1 2\n", "line 12: OLDCOST is not stated; of the arcs from 1 to 3 the costs"),
        (FIVE + "x 1 3 3 1 2\n", "line 11: LOW is 3; allowed are 0 to 1"),
        (FIVE + "r 7\n", "line 11: ID is 7; allowed are 1 to 6"),
        (FIVE + "r 5\nr 5\n", "line 12: ID is 5, which is no node any more or not yet"),
        (FIVE + "r 5\na 1 5 0 1 1\nc EOI\n", "line 12: HEAD is 5, which is no node any more or not yet"),
        (FIVE + "n 9 0\na 8 1 0 1 1\nc EOI\n", "line 12: TAIL is 8, which is no node any more or not yet"),
        (FIVE + "n 9999999 0\n", "line 11: ID is 9,999,999; allowed are 1 to 4,194,304"),
        (FIVE + "d 1 0 1\na 2 3 0 1 1\n", "line 12: TAIL is 2, HEAD is 3; one of them must be 0, for the new node"),
        (FIVE + "d 1 0 1\nr 3\n", "line 12: of the lines `a` that must follow `d` first 1 is missing"),
        (
            "p min 3 0\nn 1 -1\nn 2 1\nc EOI\nn 3 4000000000\nn 2 4000000000\nc EOI\n",
            "line 7: the supply of node 1 is -8,000,000,000; allowed are -4,294,967,295 to 4,294,967,295",
        ),
        (FIVE + "d 1 0 1\nc EOI\n", "line 12: of the lines `a` that must follow `d` first 1 is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    assert error_of(text).startswith(message)


@pytest.mark.parametrize("lines", [10, 1000])
def test_a_faulty_arc_among_many_is_named(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimacs, "CHUNK_LINES", 64)
    arcs = ["a 1 2 0 1 1\n"] * lines
    text = f"p min 2 {lines}\n"
    for wrong, message in (
        ("a 1 2 0 1 -\n", "COST is '-'"),
        ("a 1 9 0 1 1\n", "HEAD is 9"),
        ("a 1 2 0 1\n", "the fields"),
    ):
        arcs[lines - 3] = wrong
        assert error_of(text + "".join(arcs)).startswith(f"line {lines - 1}: {message}")
    arcs[lines - 3 : lines - 1] = ["a 1 2 0 1 1 1\n", "a 1 2 0 1\n"]  # Together as many fields as two arcs have.
    assert error_of(text + "".join(arcs)).startswith(f"line {lines}: the fields are 4")


def test_a_file_that_is_cut_off_anywhere_is_an_error_or_ends_a_line_early() -> None:
    whole = file_of([KNOWN[1].problem, replace(KNOWN[1].problem, cost=KNOWN[1].problem.cost + 1)])
    graph = whole.index("c EOI")
    for end in range(len(whole)):
        try:
            found = problems(whole[:end])
        except ProblemError as error:
            assert str(error).startswith("line ")
        else:
            assert len(found) <= 2
            assert end >= graph - 2, "the graph is complete but for its last end of line or digits of its last number"


def words(letters: Iterable[str]) -> st.SearchStrategy[str]:
    number = st.integers(-2, 9) | st.sampled_from([10**6, 10**12, 10**18, 10**30])
    line = st.builds(
        lambda letter, fields: " ".join([letter, *map(str, fields)]),
        st.sampled_from(list(letters)),
        st.lists(number, max_size=8),
    )
    special = st.sampled_from(
        ["c EOI", "c EOS", "c", "", "p min 4 2", "n 1 1", "n 4 -1", "a 1 4 0 2 1", "a 1 4 0 2 1 1"]
    )
    return st.lists(line | special | special, max_size=12).map("\n".join)


def read_all(data: bytes) -> None:
    try:
        for iteration in dimacs.read(BytesIO(data)):
            check.check_problem(iteration.problem)
    except ProblemError as error:
        assert str(error).startswith("line ")


@settings(max_examples=300)
@given(st.binary(max_size=60))
@example(b"p min 1 1\na\n")
@example(b"\x00")
def test_any_bytes_are_problems_or_an_error_with_its_line(data: bytes) -> None:
    read_all(data)


@settings(max_examples=300)
@given(words("cnaxrdpq"))
def test_any_lines_are_problems_or_an_error_with_its_line(text: str) -> None:
    read_all(text.encode())
    read_all(f"p min 4 2\nn 1 1\nn 4 -1\na 1 4 0 2 1\na 1 2 0 2 1\nc EOI\n{text}\nc EOI\n".encode())


@settings(max_examples=300)
@given(st.integers(0, len(FIVE) - 1), st.binary(max_size=4))
def test_a_file_with_a_fault_in_it_is_problems_or_an_error_with_its_line(place: int, fault: bytes) -> None:
    read_all(FIVE[:place].encode() + fault + FIVE[place + 1 :].encode())


# ---- solutions -----------------------------------------------------------------------------------------------------


def test_a_solution_is_written_as_dimacs_says() -> None:
    problem = KNOWN[0].problem
    lines = list(dimacs.write_solution(problem, oracle_solve(problem)))
    assert lines[0] == "s 38\n"
    assert all(line.startswith("f ") for line in lines[1:])
    assert sum(int(line.split()[3]) for line in lines[1:] if line.split()[2] == "6") == 5
