"""`sparrow run` with the options of GNU parallel, and what it says about mistakes in them."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from frontends.cli.output import Output
from frontends.cli.run_steps import Steps
from frontends.command import joblog
from frontends.command.joblog import HEADER
from sparrow_py.job import JobSpec, TaskStatus
from sparrow_py.session.attaching import TOLD_ANOTHER
from sparrow_py.session.core import unrun
from tests.support.run_fakes import FakeClient, FakeJob, assert_one_line, sparrow, tasks_of


def commands(client: FakeClient) -> list[list[str]]:
    return [task.argv for task in tasks_of(client)]


class TestInputs:
    def test_values_on_the_command_line(self, clients: list[FakeClient]) -> None:
        sparrow("run", "echo", "x", ":::", "a b", "$c", stdin="unread\n")
        assert commands(clients[0]) == [["echo", "x", "a b"], ["echo", "x", "$c"]]

    def test_all_combinations(self, clients: list[FakeClient]) -> None:
        sparrow("run", "echo", "{2}{1}", ":::", "a", "b", ":::", "1", "2")
        assert [argv[1] for argv in commands(clients[0])] == ["1a", "2a", "1b", "2b"]

    def test_files_and_standard_input(self, clients: list[FakeClient], tmp_path: Path) -> None:
        (tmp_path / "one").write_text("a\nb\n")
        sparrow("run", "echo", "::::", str(tmp_path / "one"), "-", "::::+", str(tmp_path / "one"), stdin="1\n2")
        assert [argv[1:] for argv in commands(clients[0])] == [
            ["a", "1", "a"],
            ["a", "2", "b"],
            ["b", "1", "a"],
            ["b", "2", "b"],
        ]

    def test_values_that_end_with_nul(self, clients: list[FakeClient], tmp_path: Path) -> None:
        (tmp_path / "one").write_bytes(b"a\nb\0\0")
        sparrow("run", "-0", "echo", stdin=b"x\ny\0z")
        sparrow("run", "--null", "echo", "::::", str(tmp_path / "one"))
        assert [argv[1] for argv in commands(clients[0])] == ["x\ny", "z"]
        assert [argv[1] for argv in commands(clients[1])] == ["a\nb", ""]

    def test_the_number_of_the_input_and_of_the_place(self, clients: list[FakeClient]) -> None:
        sparrow("run", "echo", "{#}{%}", ":::", "a", "b")
        assert [(task.argv, task.slot_at) for task in tasks_of(clients[0])] == [
            (["echo", "1"], [(1, 1)]),
            (["echo", "2"], [(1, 1)]),
        ]

    def test_placeholders_with_array(self, clients: list[FakeClient]) -> None:
        sparrow("run", "--array", "2", "echo", "{1}{#}")
        assert [argv[1] for argv in commands(clients[0])] == ["01", "12"]

    def test_a_shell_when_asked_for(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "--shell", "echo {1} {2} | tr a-z A-Z; echo", ":::", "a'b;", ":::", "$(c)")
        assert result.stdout == "A'B; $(C)\n\n"
        assert commands(clients[0])[0][:2] == ["sh", "-c"]


class TestOptions:
    def test_tag(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "--tag", "sh", "-c", 'printf "1\\n2"; echo e >&2', ":::", "a", ":::", "b\nc")
        assert (result.stdout, result.stderr) == ("a b\\nc\t1\na b\\nc\t2", "a b\\nc\te\n")

    def test_dry_run(self, clients: list[FakeClient], tmp_path: Path) -> None:
        log = tmp_path / "log"
        result = sparrow("run", "--dry-run", "--joblog", str(log), "echo", "{%}", "{}", ":::", "a b", "'")
        assert result.stdout == "echo '{%}' 'a b'\necho '{%}' ''\"'\"''\n"
        assert not clients and not log.exists()

    def test_timeout_and_retries(self, clients: list[FakeClient]) -> None:
        sparrow("run", "--timeout", "1.5m", "--retries", "4", "true", ":::", "a")
        sparrow("run", "--retries", "1", "true", ":::", "a")
        first, second = (client.jobs[0].spec for client in clients)
        assert (first.task_timeout_s, first.max_attempts, first.retry_failed) == (90.0, 4, True)
        assert (second.task_timeout_s, second.max_attempts, second.retry_failed) == (None, 1, False)

    @pytest.mark.parametrize(
        ("halt", "code", "started"),
        [
            (["--halt", "now,fail=1"], 3, 2),
            (["--halt", "soon,fail=1"], 3, 2),
            (["--stop-on-failure"], 1, 2),
            (["--halt", "soon,success=2"], 0, 3),
            (["--halt", "soon,fail=30%"], 34, 4),
        ],
    )
    def test_nothing_is_submitted_once_a_halt_has_come(
        self, clients: list[FakeClient], halt: list[str], code: int, started: int
    ) -> None:
        result = sparrow("run", "-j", "1", *halt, "--", "sh", "-c", "exit {}", ":::", "0", "3", "0", "5", "0", "0")
        assert (result.exit_code, len(clients[0].jobs)) == (code, started)

    def test_a_halt_that_says_now_stops_what_runs(self) -> None:
        class Running:
            def __init__(self) -> None:
                self.futures: list[Future[bytes]] = [Future()]
                self.cancelled: list[bool] = []

            def cancel(self, *, running: bool) -> None:
                self.cancelled.append(running)
                self.futures[0].cancel()

        jobs: list[Running] = []

        class Runs:
            def submit_job(self, spec: JobSpec) -> Running:
                jobs.append(Running())
                if spec.tasks == [b"b"]:
                    jobs[-1].futures[0].set_result(b"")
                return jobs[-1]

        steps = Steps(cast(Any, Runs()), JobSpec(tasks=[b"a", b"b", b"c"], app="command"), 2)
        ends = iter(steps)
        task, _ = next(ends)
        steps.cancel(running=True)
        assert (task, jobs[0].cancelled, jobs[1].cancelled) == (1, [True], [])
        assert ([task for task, _ in ends], len(jobs), steps.unsubmitted()) == ([0], 2, range(2, 3))

    def test_halt_that_does_not_come(self, clients: list[FakeClient]) -> None:
        assert sparrow("run", "--halt", "soon,fail=3", "false", ":::", "a", "b").exit_code == 2
        assert not clients[0].jobs[0].cancelled


class TestJobLog:
    ARGUMENTS = ("sh", "-c", 'echo "$1"; test "$1" != b', "sh", "{}", ":::", "a", "b", "c\nd")

    def logged(self, log: Path) -> list[list[str]]:
        header, *lines = log.read_text().splitlines()
        assert header == HEADER
        return [line.split("\t") for line in lines]

    def test_a_line_for_each_command_that_ended(self, clients: list[FakeClient], tmp_path: Path) -> None:
        log = tmp_path / "log"
        assert sparrow("run", "--joblog", str(log), *self.ARGUMENTS).exit_code == 1
        lines = self.logged(log)
        assert [(line[0], line[1], line[5], line[6], line[7]) for line in lines] == [
            ("3", ":", "4", "0", "0"),
            ("2", ":", "2", "1", "0"),
            ("1", ":", "2", "0", "0"),
        ]
        assert lines[2][8] == 'sh -c \'echo "$1"; test "$1" != b\' sh a'
        assert lines[0][8].count("\0") == 1

    def test_what_has_run_is_in_the_log_though_nobody_reads_the_output(
        self, clients: list[FakeClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nobody_reads(output: Output, stream: BinaryIO, data: bytes) -> None:
            raise BrokenPipeError

        monkeypatch.setattr(Output, "_write_bytes", nobody_reads)
        log = tmp_path / "log"
        sparrow("run", "--joblog", str(log), "--unordered", "echo", ":::", "a")
        assert list(joblog.read(str(log))[0]) == [1]

    def test_commands_that_did_not_run_or_were_killed(self, clients: list[FakeClient], tmp_path: Path) -> None:
        log = tmp_path / "log"
        sparrow("run", "--joblog", str(log), "--stop-on-failure", "{}", ":::", "lose", "true")
        assert [line[0:1] + line[6:8] for line in self.logged(log)] == [["1", "-1", "0"]]
        sparrow("run", "--joblog", str(log), "sh", "-c", "kill -9 $$", ":::", "a")
        assert [line[6:8] for line in self.logged(log)] == [["0", "9"]]

    def test_resume(self, clients: list[FakeClient], tmp_path: Path) -> None:
        log = tmp_path / "log"
        resume = ("run", "--joblog", str(log), "--resume")
        sparrow(*resume, *self.ARGUMENTS)
        text = log.read_text()
        assert sparrow(*resume, *self.ARGUMENTS).exit_code == 0
        assert len(clients) == 1 and log.read_text() == text
        log.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("1\t")))
        result = sparrow(*resume, *self.ARGUMENTS)
        assert result.stdout == "a\n" and log.read_text().count("\n") == 4

    def test_resume_failed(self, clients: list[FakeClient], tmp_path: Path) -> None:
        log = tmp_path / "log"
        sparrow("run", "--joblog", str(log), *self.ARGUMENTS)
        result = sparrow("run", "--joblog", str(log), "--resume-failed", *self.ARGUMENTS)
        assert (result.exit_code, result.stdout) == (1, "b\n")
        assert result.stderr == "sparrow: 1 of 1 task failed (first: task 1 (b): exit code 1)\n"
        assert [line[0] for line in self.logged(log)] == ["3", "2", "1", "2"]

    @pytest.mark.parametrize(
        ("arguments", "part"),
        [
            (["echo", ":::", "a", "c"], "Command of Seq 2"),
            (["echo", ":::", "a"], "Seq 2"),
            (["printf", ":::", "a", "b"], "Command of Seq 1"),
        ],
    )
    def test_a_log_of_another_command(
        self, clients: list[FakeClient], tmp_path: Path, arguments: list[str], part: str
    ) -> None:
        log = tmp_path / "log"
        sparrow("run", "--joblog", str(log), "echo", ":::", "a", "b")
        result = sparrow("run", "--joblog", str(log), "--resume", *arguments)
        assert_one_line(result, 2, "joblog", part, "the log of this command with these inputs")

    def test_a_log_that_cannot_be_written_to_any_more(self, clients: list[FakeClient]) -> None:
        assert_one_line(sparrow("run", "--joblog", "/dev/full", "true", ":::", "a"), 2, "joblog", "/dev/full")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["echo", "{2}", ":::", "a"], ["placeholder", "'{2}'", "1 or -1"]),
        (["echo", "{0}"], ["placeholder", "'{0}'"]),
        (["echo", "::::", "/no/such/file"], ["source 1 (:::: /no/such/file)", "can be read", "No such file"]),
        (["echo", ":::", "a", "::::", "/"], ["source 2 (:::: /)", "directory"]),
        (["echo", ":::"], ["source 1 (:::)", "at least one value"]),
        (["echo", "::::", "/dev/null"], ["source 1 (:::: /dev/null)", "at least one value"]),
        (["echo", ":::+", "a"], ["source 1", ":::+"]),
        ([":::", "a"], ["COMMAND", "before :::"]),
        (["--array", "2", "echo", ":::", "a"], ["--array", ":::"]),
        (["-0", "echo", ":::", "a"], ["--null", "::::"]),
        (["-0", "--array", "2", "echo"], ["--null"]),
        (["--timeout", "1", "--task-timeout", "1", "echo", ":::", "a"], ["--timeout", "--task-timeout"]),
        (["--timeout", "200%", "echo", ":::", "a"], ["timeout", "'200%'", "seconds above 0"]),
        (["--timeout", "0", "echo", ":::", "a"], ["timeout", "seconds above 0"]),
        (["--retries", "2", "--max-attempts", "3", "echo", ":::", "a"], ["--retries", "--max-attempts"]),
        (["--retries", "0", "echo", ":::", "a"], ["--retries", "1<=x<=1000"]),
        (["--halt", "1", "--stop-on-failure", "echo", ":::", "a"], ["--halt", "--stop-on-failure"]),
        (["--halt", "often", "echo", ":::", "a"], ["halt", "'often'", "soon,fail=1"]),
        (["--resume", "echo", ":::", "a"], ["--resume", "--joblog"]),
        (["--resume", "--resume-failed", "--joblog", "x", "echo", ":::", "a"], ["--resume-failed", "contradict"]),
        (["--resume", "--joblog", "/etc/passwd", "echo", ":::", "a"], ["joblog: line 1 of /etc/passwd", "header"]),
        (["--joblog", "/no/such/log", "echo", ":::", "a"], ["joblog", "can be written"]),
        (["--detach", "echo", ":::", "a"], ["--detach needs --scheduler"]),
        (["--detach", "-s", "a:1", "--halt", "never", "echo", ":::", "a"], ["--detach", "--halt", "contradict"]),
        (["--detach", "-s", "a:1", "--joblog", "x", "echo", ":::", "a"], ["--detach", "--joblog", "contradict"]),
        (["--detach", "-s", "a:1", "--retention", "-1", "echo", ":::", "a"], ["--retention", "x>=0"]),
    ],
)
def test_mistakes_cost_one_line(clients: list[FakeClient], arguments: list[str], parts: list[str]) -> None:
    assert_one_line(sparrow("run", *arguments), 2, *parts)
    assert not clients


class TestDetached:
    def test_a_job_that_is_left_to_the_cluster_is_followed_by_its_id(self, clients: list[FakeClient]) -> None:
        arguments = ("--retention", "60", "--name", "j1", "--array", "3", "--", "sh", "-c", "echo {}; exit $(({} % 2))")
        result = sparrow("run", "-s", "a:1", "--detach", *arguments)
        assert (result.stdout, result.exit_code) == ("j1\n", 0)
        assert clients[0].detached["j1"][1] == 60.0
        followed = sparrow("attach", "-s", "a:1", "j1")
        assert (followed.stdout, followed.exit_code) == ("0\n1\n2\n", 1)
        assert followed.stderr == "sparrow: 1 of 3 tasks failed (first: task 1: exit code 1)\n"
        assert_one_line(sparrow("attach", "-s", "a:1", "j1"), 255, "job_id", "'j1'", "a detached job")

    def test_without_inputs_there_is_no_job_and_no_id(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "-s", "a:1", "--detach", "--", "echo", stdin="")
        assert (result.stdout, result.exit_code) == ("", 0)
        assert result.stderr == "sparrow: there are no inputs: no job was submitted\n"
        assert not clients

    def test_what_an_attach_before_has_written_is_no_failure(self, clients: list[FakeClient]) -> None:
        sparrow("run", "-s", "a:1", "--detach", "--name", "j2", "--", "{}", ":::", "told", "true", "told")
        followed = sparrow("attach", "-s", "a:1", "j2")
        said = "sparrow: 0 of 3 tasks failed, 2 written to an attach before\n"
        assert (followed.stdout, followed.stderr, followed.exit_code) == ("", said, 0)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
    @pytest.mark.parametrize("order", ["--ordered", "--unordered"])
    def test_an_attach_that_is_ended_leaves_what_it_has_not_written(
        self, clients: list[FakeClient], monkeypatch: pytest.MonkeyPatch, order: str, error: type[BaseException]
    ) -> None:
        """The cluster was told of all of it that it is here: nobody else has it any more."""
        write, written = Output._write_bytes, list[bytes]()

        def write_two(output: Output, stream: BinaryIO, data: bytes) -> None:
            if data and len(written) == 2:
                raise error
            write(output, stream, data)
            written.extend([data] if data else [])

        sparrow("run", "-s", "a:1", "--detach", "--name", "j3", "--", "echo", "{}", ":::", "0", "1", "2", "3")
        job = FakeClient.detached["j3"][0]
        monkeypatch.setattr(Output, "_write_bytes", write_two)
        followed = sparrow("attach", "-s", "a:1", order, "j3")
        assert followed.stdout_bytes == b"".join(written)
        assert FakeClient.detached.pop("j3")[0] is job
        left: list[Any] = job.futures
        assert {b"%d\n" % future.task for future in left if future.reference is None} == set(written)
        for one in left:
            told = unrun("j3", one.task, TaskStatus.LOST, TOLD_ANOTHER)
            assert one.outcome == (told if one.reference is None else one.reference)

    def test_a_job_of_no_commands_stays_where_it_is(self, clients: list[FakeClient]) -> None:
        FakeClient.detached["calls"] = FakeJob(JobSpec([b""], name="calls")), 1.0
        assert_one_line(
            sparrow("attach", "-s", "a:1", "calls"), 255, "a job of commands; this one is of the app python"
        )
        assert FakeClient.detached.pop("calls")
