"""The commands `loadgen dags`: files are made, read and described; bad values are one line that names the field."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from loadgen.__main__ import main
from loadgen.dags.dag_files import read_dags

BATCH_TASK = "R2_1,2,j_1,1,Terminated,20,30,100,0.5\nM1,4,j_1,1,Terminated,10,20,100,0.5\nM1,1,j_2,1,Failed,1,2,100,1\n"


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["dags", *words])
    return done.exit_code, done.output


@pytest.mark.parametrize("workload", ["tpcds", "bigbench", "production", "tpch", "map-reduce"])
def test_workloads_are_made_and_described(tmp_path: Path, workload: str) -> None:
    one, other = str(tmp_path / "one.jsonl"), str(tmp_path / "other.jsonl")
    for out in (one, other):
        assert run("generate", workload, "--jobs", "12", "--users", "3", "--out", out) == (0, f"12 jobs in {out}\n")
    assert Path(one).read_bytes() == Path(other).read_bytes()
    assert {job.user for job in read_dags(one)} == {"user0", "user1", "user2"}
    code, said = run("describe", one)
    assert code == 0
    assert "| 12 jobs | ours | the paper's |" in said
    assert ("| critical path p50 | " in said) and (" | 5 |" in said) == (workload != "map-reduce")


def test_jobs_arrive_at_once_or_when_others_do(tmp_path: Path) -> None:
    first, once, like = (str(tmp_path / f"{name}.jsonl") for name in ("first", "once", "like"))
    run("generate", "map-reduce", "--jobs", "5", "--out", first)
    run("generate", "map-reduce", "--jobs", "5", "--arrivals", "once", "--out", once)
    run("generate", "tpcds", "--jobs", "4", "--arrivals", first, "--out", like)
    assert [job.arrival_s for job in read_dags(once)] == [0.0] * 5
    assert "| at once |" in run("describe", once)[1]
    times = [job.arrival_s for job in read_dags(first)]
    assert [job.arrival_s for job in read_dags(like)] == times[:4]
    assert 0 < times[0] < times[-1]


def test_alibabas_table_is_read(tmp_path: Path) -> None:
    path, out = tmp_path / "batch_task.csv", str(tmp_path / "out.jsonl")
    path.write_text(BATCH_TASK)
    code, said = run("alibaba", str(path), "--out", out)
    assert (code, said) == (0, f"1 job in {out}\nleft out: 1 job with a task that did not finish\n")
    (job,) = read_dags(out)
    assert [(stage.tasks, stage.parents) for stage in job.stages] == [(4, ()), (2, (0,))]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "tpcds", "--jobs", "0", "--out", "x"], "jobs: 0 is not valid"),
        (["generate", "tpcds", "--users", "0", "--out", "x"], "users: 0 is not valid"),
        (["generate", "tpcds", "--mean-s", "-1", "--out", "x"], "mean_s: -1.0 is not valid"),
        (["generate", "tpcds", "--arrivals", "/none", "--out", "x"], "workload: '/none' is not valid"),
        (["generate", "tpch", "--scales", "big", "--out", "x"], "scales: 'big' is not valid"),
        (["generate", "tpch", "--recorded", "/none", "--out", "x"], "recorded: '/none' is not valid"),
        (["generate", "map-reduce", "--map-only", "2", "--out", "x"], "map_only: 2.0 is not valid"),
        (["generate", "tpcds", "--out", "/none/x"], "out: '/none/x' is not valid"),
        (["alibaba", "/none", "--out", "x"], "trace: '/none' is not valid"),
        (["alibaba", "/none", "--jobs", "0", "--out", "x"], "jobs: 0 is not valid"),
        (["describe", "/none"], "workload: '/none' is not valid"),
        (["describe", "/dev/null"], "workload: '/dev/null' is not valid"),
        (["record", "--scales", "1", "--out", "x"], "scales: '1' is not valid"),
        (["record", "--scales", "1,0.1", "--out", "x"], "scale: '1,0.1' is not valid"),
        (["record", "--runs", "0", "--out", "x"], "runs: 0 is not valid"),
    ],
)
def test_bad_values_are_one_line_that_names_the_field(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run(*words)
    assert code == 2
    assert said in output
    assert len(output.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_with_fewer_arrivals_than_jobs_is_refused(tmp_path: Path) -> None:
    first = str(tmp_path / "first.jsonl")
    run("generate", "map-reduce", "--jobs", "2", "--out", first)
    code, said = run("generate", "tpcds", "--jobs", "3", "--arrivals", first, "--out", str(tmp_path / "x"))
    assert code == 2
    assert "arrivals: '2 jobs' is not valid; allowed: a workload of at least 3" in said
