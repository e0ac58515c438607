"""The command executor, as its node monitor sees it, and the commands it is sent."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from frontends.command.process import KEEPER_KILLED, STREAM_BYTES_MAX, exit_error
from frontends.command.tasks import (
    STRING_BYTES_MAX,
    CommandResult,
    CommandTask,
    command_job,
    decode_result,
    decode_task,
    encode_task,
)
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.executors.executor_files import read, store
from sparrow_py.executors.executor_protocol import (
    INLINE_BYTES_MAX,
    Common,
    Done,
    File,
    ForgetCommon,
    Kill,
    Returned,
    Revoke,
    Run,
)
from sparrow_py.job import TaskStatus
from tests.frontends.executor_harness import TIMEOUT_S, Monitor
from tests.support.daemons import gone
from tests.support.waiting import wait_until

MODULE = "frontends.command.executor"
DAEMON = """(setsid sh -c 'exec 3>"$0"; echo $$ >&3; exec sleep 1000' "$0" &)"""
"""Starts a process with a session of its own and no parent, which writes its number to a named pipe that it keeps
open."""


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """An executor with one place."""
    with Monitor(MODULE, tmp_path, SECRET="x", TZ="UTC") as monitor:
        yield monitor


def run(number: int, *argv: str, **fields: Any) -> Run:
    return Run(number, 0, encode_task(CommandTask(list(argv), **fields)))


def children_of(monitor: Monitor) -> list[int]:
    pid = monitor.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def done(monitor: Monitor, *argv: str, **fields: Any) -> Done:
    """The end of this command."""
    monitor.send(run(1, *argv, **fields))
    return monitor.receive(Done)


def result(monitor: Monitor, *argv: str, **fields: Any) -> CommandResult:
    """The result of this command, which finishes."""
    answer = done(monitor, *argv, **fields)
    assert (answer.status, answer.error) == (TaskStatus.FINISHED, "")
    return decode_result(read(answer.result))


def holder(fifo: str) -> tuple[str, ...]:
    """A command that holds the fifo open for writing until it is killed, and so does its child."""
    return "sh", "-c", 'exec 3>"$0"; sleep 1000; true', fifo


class TestCommands:
    def test_hello(self, monitor: Monitor) -> None:
        assert (monitor.hello.app, monitor.hello.id, monitor.hello.places) == ("command", "e1", 1)
        assert monitor.hello.pid == monitor.process.pid

    def test_output_and_times(self, monitor: Monitor) -> None:
        before_s = time.time()
        answer = done(monitor, "sh", "-c", "echo out; echo err >&2")
        assert decode_result(read(answer.result)) == CommandResult(0, b"out\n", b"err\n", False)
        assert before_s <= answer.started_at_s <= answer.started_at_s + answer.service_s <= time.time() + 0.01

    def test_a_command_that_is_to_be_measured_says_what_it_and_its_children_used(self, monitor: Monitor) -> None:
        code = "import time; kept = bytearray(60 << 20)\nwhile time.process_time() < 0.2: pass"
        task = encode_task(CommandTask(["sh", "-c", f"{sys.executable} -c '{code}'; true"]))
        monitor.send(Run(1, 0, task, measure=True))
        used = monitor.receive(Done).used
        assert used is not None and used.cpu_s is not None and used.memory_bytes is not None
        assert 0.2 <= used.cpu_s < 5 and used.memory_bytes > 60 << 20
        assert done(monitor, "true").used is None

    def test_there_is_no_shell(self, monitor: Monitor) -> None:
        assert result(monitor, "echo", "$HOME; *").stdout == b"$HOME; *\n"

    def test_stdin(self, monitor: Monitor) -> None:
        assert result(monitor, "tr", "a-z", "A-Z", stdin=b"sparrow").stdout == b"SPARROW"
        assert result(monitor, "cat").stdout == b""

    def test_environment_is_clean(self, monitor: Monitor) -> None:
        lines = result(monitor, "env", env={"GREETING": "hej då"}).stdout.decode().splitlines()
        names = {line.partition("=")[0] for line in lines}
        assert names - {"HOME", "LANG"} == {"PATH", "TZ", "GREETING"}
        assert "GREETING=hej då" in lines

    def test_a_directory_and_a_path_are_those_of_their_command_alone(self, monitor: Monitor, tmp_path: Path) -> None:
        program = tmp_path / "here"
        program.write_text("#!/bin/sh\npwd\n")
        program.chmod(0o755)
        before = result(monitor, "pwd").stdout
        assert result(monitor, "./here", cwd=str(tmp_path)).stdout == f"{tmp_path}\n".encode()
        assert result(monitor, "here", env={"PATH": f"/no/such:{tmp_path}"}).stdout == before
        assert result(monitor, "here", env={"PATH": "."}, cwd=str(tmp_path)).stdout == f"{tmp_path}\n".encode()
        assert result(monitor, "pwd").stdout == before
        assert done(monitor, "here").error == "command not found: 'here'"

    def test_output_that_comes_while_the_command_runs_and_when_it_ends(self, monitor: Monitor, fifo: str) -> None:
        """More than a pipe holds, before and after the executor has begun to read."""
        script = 'head -c 100000 /dev/zero; cat "$0"; head -c 60000 /dev/zero'
        monitor.send(run(1, "sh", "-c", script, fifo))
        with Path(fifo).open("w") as writer:
            writer.write("x")
        written = decode_result(read(monitor.receive(Done).result)).stdout
        assert (len(written), written.count(b"x")) == (160_001, 1)

    def test_environment_of_the_task_wins(self, monitor: Monitor) -> None:
        assert result(monitor, "sh", "-c", "echo $TZ", env={"TZ": "CET"}).stdout == b"CET\n"

    def test_working_directory(self, monitor: Monitor, tmp_path: Path) -> None:
        assert result(monitor, "pwd", cwd=str(tmp_path)).stdout == f"{tmp_path}\n".encode()

    def test_session_of_its_own(self, monitor: Monitor) -> None:
        session = result(monitor, "sh", "-c", "cut -d' ' -f1,6 /proc/$$/stat").stdout.split()
        assert session[0] == session[1]

    def test_common_bytes_are_ignored(self, monitor: Monitor) -> None:
        monitor.send(Common(1, b"x"), ForgetCommon(1))
        assert result(monitor, "true").exit_code == 0

    def test_output_past_the_limit_is_dropped_and_the_command_goes_on(self, monitor: Monitor) -> None:
        script = "head -c 1000000 /dev/zero; head -c 900000 /dev/zero >&2; echo end >&2"
        written = result(monitor, "sh", "-c", script)
        assert (len(written.stdout), len(written.stderr), written.truncated) == (STREAM_BYTES_MAX,) * 2 + (True,)

    def test_output_at_the_limit_is_whole(self, monitor: Monitor) -> None:
        data = os.urandom(STREAM_BYTES_MAX)
        assert result(monitor, "cat", stdin=data) == CommandResult(0, data, b"", False)


class TestFailures:
    def test_exit_code(self, monitor: Monitor) -> None:
        answer = done(monitor, "sh", "-c", "echo out; exit 3")
        assert (answer.status, answer.error) == (TaskStatus.FAILED, "exit code 3")
        assert decode_result(read(answer.result)) == CommandResult(3, b"out\n", b"", False)

    def test_signal(self, monitor: Monitor) -> None:
        answer = done(monitor, "sh", "-c", "kill -9 $$")
        assert (answer.status, answer.error) == (TaskStatus.FAILED, "killed by signal 9 (SIGKILL)")
        assert decode_result(read(answer.result)).exit_code == -9

    def test_signal_without_a_name(self) -> None:
        assert exit_error(-40) == "killed by signal 40"

    @pytest.mark.parametrize(
        ("argv", "cwd", "error"),
        [
            (["no-such-command"], "", "command not found: 'no-such-command'"),
            (["/etc/passwd"], "", "cannot run '/etc/passwd': Permission denied"),
            (["true"], "/no/such/directory", "working directory '/no/such/directory' does not exist"),
            (["true"], "/etc/passwd", "cannot use working directory '/etc/passwd': Not a directory"),
        ],
    )
    def test_a_command_that_cannot_be_started_fails_with_the_reason(
        self, monitor: Monitor, argv: list[str], cwd: str, error: str
    ) -> None:
        answer = done(monitor, *argv, cwd=cwd)
        assert (answer.status, answer.result, answer.error) == (TaskStatus.FAILED, b"", error)

    @pytest.mark.parametrize(
        "payload", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa4argv\x90", b"\x81\xa4argv\x91\xa1\0"]
    )
    def test_a_payload_that_is_not_a_task_fails(self, monitor: Monitor, payload: bytes) -> None:
        monitor.send(Run(1, 0, payload))
        answer = monitor.receive(Done)
        assert (answer.status, answer.result) == (TaskStatus.FAILED, b"")
        assert answer.error.startswith(("payload: ", "argv"))
        assert result(monitor, "true").exit_code == 0


class TestPlaces:
    def test_as_many_commands_run_at_once_as_there_are_places(self, tmp_path: Path, fifo: str) -> None:
        with Monitor(MODULE, tmp_path, SPARROW_EXECUTOR_PLACES="2") as monitor:
            assert monitor.hello.places == 2
            # Each of the two waits for the other to open the fifo.
            monitor.send(run(1, "cat", fifo), run(2, "sh", "-c", 'echo met >"$0"', fifo), run(3, "true"))
            answers = {answer.run: answer for answer in (monitor.receive(Done) for _ in range(3))}
        assert decode_result(read(answers[1].result)).stdout == b"met\n"
        assert {answer.status for answer in answers.values()} == {TaskStatus.FINISHED}

    def test_one_place_runs_in_order(self, monitor: Monitor) -> None:
        monitor.send(*(run(number, "true") for number in range(20)))
        assert [monitor.receive(Done).run for _ in range(20)] == list(range(20))

    def test_revoked_runs_are_returned_unless_they_run(self, monitor: Monitor, fifo: str) -> None:
        monitor.send(*(run(number, "cat", fifo) for number in (1, 2, 3)))
        with Path(fifo).open("w"):  # which waits until the first runs
            monitor.send(Revoke([1, 2, 9]))
            assert monitor.receive(Returned).runs == [2]
        assert monitor.receive(Done).run == 1
        Path(fifo).write_text("go")
        assert monitor.receive(Done).run == 3

    def test_a_revoked_run_that_has_not_started_is_returned(self, monitor: Monitor) -> None:
        monitor.send(run(1, "true"), run(2, "true"), Revoke([1]))
        assert monitor.receive(Returned).runs == [1]
        assert monitor.receive(Done).run == 2

    @pytest.mark.parametrize("places", ["0", "-1", "many", "1.5", ""])
    def test_an_invalid_number_of_places_is_an_error(self, places: str) -> None:
        environment = os.environ | {"SPARROW_EXECUTOR_PLACES": places}
        ended = subprocess.run([sys.executable, "-m", MODULE], env=environment, stderr=subprocess.PIPE, check=False)
        assert ended.returncode == 1
        assert ended.stderr.decode().startswith("sparrow command executor: SPARROW_EXECUTOR_PLACES: ")
        assert ended.stderr.count(b"\n") == 1

    def test_without_a_node_monitor(self) -> None:
        ended = subprocess.run([sys.executable, "-m", MODULE], stderr=subprocess.PIPE, check=False)
        assert (ended.returncode, ended.stderr.count(b"\n")) == (1, 1)


class TestFiles:
    def test_large_payloads_and_results_are_files(self, monitor: Monitor, tmp_path: Path) -> None:
        data = os.urandom(INLINE_BYTES_MAX)
        payload = store(encode_task(CommandTask(["cat"], data)), str(tmp_path))
        assert isinstance(payload, File)
        monitor.send(Run(1, 0, payload))
        answer = monitor.receive(Done)
        assert isinstance(answer.result, File)
        assert Path(answer.result.path).parent == monitor.files
        assert decode_result(read(answer.result)) == CommandResult(0, data, b"", False)

    def test_a_payload_file_that_does_not_exist_fails_the_run(self, monitor: Monitor) -> None:
        monitor.send(Run(1, 0, File("/no/such/file", 1, "")))
        answer = monitor.receive(Done)
        assert (answer.status, answer.result) == (TaskStatus.FAILED, b"")
        assert "/no/such/file" in answer.error
        assert result(monitor, "true").exit_code == 0

    def test_a_result_that_cannot_be_written(self, monitor: Monitor) -> None:
        monitor.files.rmdir()
        answer = done(monitor, "cat", stdin=bytes(INLINE_BYTES_MAX))
        assert (answer.status, answer.result) == (TaskStatus.FAILED, b"")
        assert answer.error.endswith("bytes cannot be kept on the node: No such file or directory")


def done_json(monitor: Monitor, payload: str) -> Done:
    """The end of the command that this JSON describes."""
    monitor.send(Run(1, 0, payload.encode()))
    return monitor.receive(Done)


class TestJson:
    def test_result_is_json_too(self, monitor: Monitor) -> None:
        payload = '{"argv": ["sh", "-c", "cat; echo $A >&2; pwd"], "stdin": "hej då", "env": {"A": "ö"}, "cwd": "/"}'
        answer = done_json(monitor, payload)
        assert answer.status is TaskStatus.FINISHED
        assert json.loads(read(answer.result)) == {
            "exit_code": 0,
            "stdout": "hej då/\n",
            "stderr": "ö\n",
            "truncated": False,
        }

    def test_failure_has_a_result(self, monitor: Monitor) -> None:
        answer = done_json(monitor, '{"argv": ["false"]}')
        assert (answer.status, answer.error) == (TaskStatus.FAILED, "exit code 1")
        assert json.loads(read(answer.result))["exit_code"] == 1

    def test_output_that_is_not_text_is_escaped(self, monitor: Monitor) -> None:
        answer = done_json(monitor, r"""{"argv": ["printf", "a\\377\\303\\244"]}""")
        assert json.loads(read(answer.result))["stdout"] == "a\\xffä"

    @pytest.mark.parametrize(
        "payload", ["{", '{"argv": []}', '{"argv": ["true"], "stdin": 1}', '{"argv": ["true"], "x": 1}', "[]", "{}x"]
    )
    def test_a_payload_that_is_not_a_task_fails(self, monitor: Monitor, payload: str) -> None:
        answer = done_json(monitor, payload)
        assert (answer.status, answer.result) == (TaskStatus.FAILED, b"")
        assert answer.error.startswith(("payload: ", "argv: "))


class TestKill:
    def test_a_run_and_what_it_started(self, tmp_path: Path, fifo: str) -> None:
        with Monitor(MODULE, tmp_path, SPARROW_EXECUTOR_PLACES="2") as monitor:
            monitor.send(run(1, *holder(fifo)))
            with Path(fifo).open("rb") as held:
                monitor.send(Kill([1, 99]))
                assert held.read() == b""
            answer = monitor.receive(Done)
            assert (answer.run, answer.status, answer.error) == (1, TaskStatus.FAILED, "it was killed")
            assert decode_result(read(answer.result)).exit_code == -signal.SIGKILL
            monitor.send(Kill([1]), run(2, "true"))
            assert monitor.receive(Done).status is TaskStatus.FINISHED

    def test_a_run_that_was_about_to_start(self, monitor: Monitor, fifo: str) -> None:
        monitor.send(run(1, *holder(fifo)), run(2, "true"), Kill([1, 2]))
        for number in (1, 2):
            answer = monitor.receive(Done)
            assert (answer.run, answer.status, answer.error) == (number, TaskStatus.FAILED, "it was killed")
        monitor.send(run(2, "true"))
        assert monitor.receive(Done).status is TaskStatus.FINISHED


class TestNothingIsLeftRunning:
    def test_processes_that_a_command_left_behind_are_killed(self, monitor: Monitor, fifo: str) -> None:
        os.mkfifo(f"{fifo}2")
        monitor.send(run(1, "sh", "-c", 'sleep 1000 3>"$0" & cat <"$1"', fifo, f"{fifo}2"))
        with Path(fifo).open("rb") as held:
            Path(f"{fifo}2").write_text("end")
            assert held.read() == b""
        assert decode_result(read(monitor.receive(Done).result)).stdout == b"end"

    def test_a_daemon_that_a_command_started_is_killed(self, monitor: Monitor, fifo: str) -> None:
        """The daemon has a session of its own and no parent, and holds the command's output open."""
        written = result(monitor, "sh", "-c", f'{DAEMON}; head -n 1 "$0"', fifo)
        wait_until(lambda: gone(int(written.stdout)))

    def test_killing_a_command_kills_its_daemon_and_no_other_command_s(self, tmp_path: Path, fifo: str) -> None:
        other_fifo = f"{fifo}2"
        os.mkfifo(other_fifo)
        with Monitor(MODULE, tmp_path, SPARROW_EXECUTOR_PLACES="2") as monitor:
            for number, path in ((1, fifo), (2, other_fifo)):
                monitor.send(run(number, "sh", "-c", f"{DAEMON}; sleep 1000", path))
            with Path(fifo).open("rb", 0) as held, Path(other_fifo).open("rb", 0) as other:
                assert int(held.readline()) and int(other.readline())
                monitor.send(Kill([1]))
                assert monitor.receive(Done).run == 1
                assert held.read() == b""
                assert select.select([other], [], [], 0)[0] == []

    def test_killing_an_executor_kills_the_daemon_of_its_command(self, monitor: Monitor, fifo: str) -> None:
        monitor.send(run(1, "sh", "-c", f"{DAEMON}; sleep 1000", fifo))
        with Path(fifo).open("rb", 0) as held:
            assert int(held.readline())
            monitor.process.kill()
            assert held.read() == b""

    def test_commands_are_killed_when_the_node_monitor_goes_away(self, monitor: Monitor, fifo: str) -> None:
        monitor.send(run(1, *holder(fifo)))
        with Path(fifo).open("rb") as held:
            monitor.hang_up()
            assert held.read() == b""
        assert monitor.process.wait(TIMEOUT_S) == 0

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_commands_are_killed_when_the_executor_is_killed(
        self, monitor: Monitor, fifo: str, number: signal.Signals
    ) -> None:
        monitor.send(run(1, *holder(fifo)))
        with Path(fifo).open("rb") as held:
            monitor.send(Revoke([]))
            monitor.receive(Returned)  # so the executor is done with starting it
            monitor.process.send_signal(number)
            assert held.read() == b""
        assert monitor.process.wait(TIMEOUT_S) == (0 if number == signal.SIGTERM else -number)

    def test_a_command_whose_keeper_is_killed_fails(self, monitor: Monitor, fifo: str) -> None:
        monitor.send(run(1, *holder(fifo)))
        with Path(fifo).open("rb") as held:
            (keeper,) = children_of(monitor)
            os.kill(keeper, signal.SIGKILL)
            answer = monitor.receive(Done)
            assert (answer.status, answer.error) == (TaskStatus.FAILED, KEEPER_KILLED)
            assert held.read() == b""
        assert result(monitor, "echo", "on").stdout == b"on\n"
        wait_until(lambda: len(children_of(monitor)) == 1 and keeper not in children_of(monitor))

    def test_ctrl_c_is_not_for_the_executor(self, monitor: Monitor) -> None:
        monitor.process.send_signal(signal.SIGINT)
        answer = done(monitor, "sh", "-c", "kill -INT $$; echo deaf")
        assert answer.error == "killed by signal 2 (SIGINT)"


class TestJobs:
    def test_tasks_are_decoded_as_they_were_encoded(self) -> None:
        task = CommandTask(["echo", "hej då"], b"\0in", {"A": "b"}, "/tmp")
        spec = command_job([task, ["true"]], name="n", max_attempts=1)
        assert (spec.app, spec.name, spec.max_attempts) == ("command", "n", 1)
        assert [decode_task(payload) for payload in spec.tasks if isinstance(payload, bytes)] == [
            task,
            CommandTask(["true"]),
        ]
        spec.validate()

    def test_payload_is_a_map_that_any_language_can_write(self) -> None:
        assert decode_task(msgspec.msgpack.encode({"argv": ["true"]})) == CommandTask(["true"])

    @pytest.mark.parametrize(
        ("task", "field"),
        [
            ([], "tasks[1].argv"),
            ("echo x", "tasks[1]"),
            (7, "tasks[1]"),
            ([""], "tasks[1].argv[0]"),
            (["echo", 1], "tasks[1].argv[1]"),
            (["echo", "a\0b"], "tasks[1].argv[1]"),
            (["echo", "\udcff"], "tasks[1].argv[1]"),
            (["echo", "x" * (STRING_BYTES_MAX + 1)], "tasks[1].argv[1]"),
            (["echo"] + ["x" * STRING_BYTES_MAX] * 10, "tasks[1].argv"),
            (["echo"] * 100_000, "tasks[1].argv"),
            (CommandTask(["echo"], env={"A=B": "c"}), "tasks[1].env"),
            (CommandTask(["echo"], env={"": "c"}), "tasks[1].env"),
            (CommandTask(["echo"], env={"A": "\0"}), "tasks[1].env['A']"),
            (CommandTask(["echo"], env=[]), "tasks[1].env"),  # type: ignore[arg-type]
            (CommandTask(["echo"], cwd="/a\0"), "tasks[1].cwd"),
            (CommandTask(["echo"], stdin="text"), "tasks[1].stdin"),  # type: ignore[arg-type]
        ],
    )
    def test_the_field_of_invalid_input_is_named(self, task: Any, field: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            command_job([["true"], task])
        assert caught.value.field == field
        assert len(str(caught.value)) < 400

    def test_longest_argument_runs(self, monitor: Monitor) -> None:
        assert len(result(monitor, "printf", "%s", "x" * STRING_BYTES_MAX).stdout) == STRING_BYTES_MAX

    def test_bytes_that_are_not_a_result_are_an_error(self) -> None:
        with pytest.raises(LinkError, match="malformed result"):
            decode_result(b"\xc1")
