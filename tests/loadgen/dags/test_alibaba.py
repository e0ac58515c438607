"""The reader of Alibaba's format of 2018: dependencies in names, what is left out, and hostile lines."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadgen.dags import alibaba
from loadgen.dags.alibaba import CPU_DEFAULT, MEMORY_DEFAULT, SHORTEST_S, read_alibaba
from loadgen.dags.resources import CPU, MACHINE, MEMORY
from sparrow_py.errors import InvalidOption

TABLE = """\
J5_3_4,2,j_2,1,Terminated,140,150,200,1.5
R4_2,7,j_2,1,Terminated,120,130,50,0.3
M3_1,1,j_2,1,Terminated,111,111,,
M2_1,3,j_2,1,Terminated,111,120,100,101
M1,10,j_2,1,Terminated,100,110,100,0.2
task_Nzg3ODA=,4,j_1,2,Terminated,90,95,100,0.5
task_Nzg3ODE=,1,j_1,2,Terminated,91,99,100,0.5
R2_1_Stg4,1,j_3,1,Terminated,90,99,100,0.5
M1_Stg1,1.0,j_3,1,Terminated,80,89,100,0.5
"""
LEFT_OUT = """\
M1,1,failed,1,Terminated,10,20,100,1
R2_1,1,failed,1,Failed,20,30,100,1
M1,1,outside,1,Terminated,0,20,100,1
M2_1,1,orphan,1,Terminated,10,20,100,1
M1_2,1,circle,1,Terminated,10,20,100,1
M2_1,1,circle,1,Terminated,10,20,100,1
M1,1,twice,1,Terminated,10,20,100,1
R1,1,twice,1,Terminated,10,20,100,1
M1,5000000,large,1,Terminated,10,20,100,1
M1,1,good,1,Terminated,10,20,100,1
"""


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def test_names_say_which_tasks_wait_for_which(tmp_path: Path) -> None:
    """The example of the format's own description; jobs come in order of arrival, from the first one's on."""
    jobs, left_out = read_alibaba(written(tmp_path / "batch_task.csv", TABLE))
    assert not left_out
    assert [(job.name, job.arrival_s) for job in jobs] == [("j_3", 0.0), ("j_1", 10.0), ("j_2", 20.0)]
    job = jobs[2]
    assert [(stage.tasks, stage.parents) for stage in job.stages] == [
        (10, ()), (1, (0,)), (3, (0,)), (7, (2,)), (2, (1, 3)),
    ]  # fmt: skip
    assert (job.barriers, job.depth) == (1, 4)
    assert [stage.duration_s for stage in job.stages] == [10.0, SHORTEST_S, 9.0, 10.0, 10.0]


def test_plans_are_cores_and_percent_of_a_machine(tmp_path: Path) -> None:
    """What is missing, or 101 as in the trace, is not known."""
    jobs, _ = read_alibaba(written(tmp_path / "batch_task.csv", TABLE))
    stages = jobs[2].stages
    assert stages[4].demand == {CPU: 2.0, MEMORY: 0.015 * MACHINE[MEMORY]}
    default = {CPU: CPU_DEFAULT / 100, MEMORY: MEMORY_DEFAULT / 100 * MACHINE[MEMORY]}
    assert stages[1].demand == stages[2].demand == default


def test_tasks_without_numbers_wait_for_none(tmp_path: Path) -> None:
    jobs, _ = read_alibaba(written(tmp_path / "batch_task.csv", TABLE))
    assert [stage.parents for stage in jobs[1].stages] == [(), ()]
    assert [stage.parents for stage in jobs[0].stages] == [(), (0,)]


def test_jobs_that_cannot_be_used_are_counted_by_the_reason(tmp_path: Path) -> None:
    jobs, left_out = read_alibaba(written(tmp_path / "batch_task.csv", LEFT_OUT))
    assert [job.name for job in jobs] == ["good"]
    assert left_out == {alibaba.UNFINISHED: 1, alibaba.UNTIMED: 1, alibaba.UNCLEAR: 3, alibaba.TOO_LARGE: 1}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("M1,1,j,1,Terminated,10,20,100", "b.csv:2: '8 fields' is not valid"),
        (",1,j,1,Terminated,10,20,100,1", "b.csv:2 task_name"),
        ("M1,1,,1,Terminated,10,20,100,1", "b.csv:2 job_name"),
        ("M1,0,j,1,Terminated,10,20,100,1", "b.csv:2 instance_num"),
        ("M1,1.5,j,1,Terminated,10,20,100,1", "b.csv:2 instance_num"),
        ("M1,1,j,1,Terminated,x,20,100,1", "b.csv:2 start_time"),
        ("M1,1,j,1,Terminated,30,20,100,1", "b.csv:2 end_time: '20' is not valid; allowed: seconds from 30 on"),
        ("M1,1,j,1,Terminated,10,20,lots,1", "b.csv:2 plan_cpu"),
        ("M1,1,j,1,Terminated,10,20,100,inf", "b.csv:2 plan_mem"),
    ],
)
def test_fields_that_cannot_be_are_refused_by_line_and_name(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_alibaba(written(tmp_path / "b.csv", f"M1,1,first,1,Terminated,10,20,100,1\n{line}\n"))


def test_rows_of_a_job_stand_together(tmp_path: Path) -> None:
    rows = "M1,1,a,1,Terminated,10,20,100,1\nM1,1,b,1,Terminated,10,20,100,1\nM2,1,a,1,Terminated,10,20,100,1\n"
    with pytest.raises(InvalidOption, match="rows of a job stand together"):
        read_alibaba(written(tmp_path / "b.csv", rows))


def test_only_as_many_jobs_as_wanted_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "b.csv", TABLE + "M1,1,later,1,Terminated,what,20,100,1\n")
    assert [job.name for job in read_alibaba(path, 2)[0]] == ["j_1", "j_2"]
    with pytest.raises(InvalidOption, match="start_time"):
        read_alibaba(path)


FIELDS = st.one_of(
    st.sampled_from(["M1", "M2_1", "R3_1_2", "J4_4", "M5_9_", "task_x", "j", "Terminated", "", "nan", "0", "1", "9"]),
    st.integers(-2, 10**10).map(str),
    st.text(st.characters(exclude_characters=",\n\r", codec="utf-8"), max_size=6),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.lists(FIELDS, min_size=9, max_size=9).map(",".join), max_size=6))
@example(["M1,1,j,1,Terminated,1,1,1,1", 'M2_1,1,j,1,Terminated,1,1,1,"'])
@example(["\0"])
def test_hostile_lines_give_jobs_that_can_be_or_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "hostile.csv", "\n".join(lines))
    try:
        jobs, _ = read_alibaba(path)
    except InvalidOption as error:
        assert "\n" not in str(error).replace(repr(error.value), "")
    else:
        assert jobs[0].arrival_s == 0.0
