"""Keepers of commands: they are reused, and nothing of one command reaches the next."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from frontends.command.keeper import DESCRIPTORS
from frontends.command.tasks import STRING_BYTES_MAX, CommandResult, CommandTask, decode_result, encode_task
from sparrow_py.executors.executor_files import read, store
from sparrow_py.executors.executor_protocol import Done, Kill, Returned, Revoke, Run
from sparrow_py.job import TaskStatus
from tests.frontends.executor_harness import TIMEOUT_S, Monitor
from tests.support.daemons import gone
from tests.support.waiting import wait_until

MODULE = "frontends.command.executor"
DAEMON = """(setsid sh -c 'echo $$ >"$0"; exec sleep 1000' "$0" &)"""
"""Starts a process with a session of its own and no parent, which writes its number to a file or named pipe."""
NO_DESCRIPTORS = "cannot run 'true': Too many open files"


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """An executor with one place."""
    with Monitor(MODULE, tmp_path) as monitor:
        yield monitor


@pytest.fixture
def two_places(tmp_path: Path) -> Iterator[Monitor]:
    with Monitor(MODULE, tmp_path, SPARROW_EXECUTOR_PLACES="2") as monitor:
        yield monitor


def answers(monitor: Monitor) -> None:
    """Wait until the executor answers, so that it has begun."""
    monitor.send(Revoke([]))
    monitor.receive(Returned)


def run(number: int, *argv: str) -> Run:
    return Run(number, 0, encode_task(CommandTask(list(argv))))


def done(monitor: Monitor, *argv: str) -> Done:
    monitor.send(run(1, *argv))
    return monitor.receive(Done)


def result(monitor: Monitor, *argv: str) -> CommandResult:
    """The result of this command, which finishes."""
    answer = done(monitor, *argv)
    assert (answer.status, answer.error) == (TaskStatus.FINISHED, "")
    return decode_result(read(answer.result))


def keepers_of(monitor: Monitor) -> list[psutil.Process]:
    """All children of the executor: it should have no others."""
    return psutil.Process(monitor.process.pid).children()


def descriptors_of(pid: int) -> list[str]:
    """The descriptors that this process has open, without the inodes of pipes and sockets."""
    names = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH115, PTH208
    return sorted(name.partition(":[")[0] for name in names)


class TestReuse:
    def test_no_keeper_is_started_before_the_first_command(self, monitor: Monitor) -> None:
        answers(monitor)
        assert keepers_of(monitor) == []

    def test_a_keeper_serves_many_commands_and_keeps_no_descriptors_of_them(self, monitor: Monitor) -> None:
        result(monitor, "true")
        (keeper,) = keepers_of(monitor)
        before = descriptors_of(keeper.pid), descriptors_of(monitor.process.pid)
        for number in range(30):
            assert result(monitor, "echo", f"{number}").stdout == f"{number}\n".encode()
            assert done(monitor, "no-such-command").error == "command not found: 'no-such-command'"
        assert keepers_of(monitor) == [keeper]
        assert keeper.children() == []
        assert (descriptors_of(keeper.pid), descriptors_of(monitor.process.pid)) == before

    def test_each_place_has_a_keeper_without_descriptors_of_the_others(self, two_places: Monitor, fifo: str) -> None:
        for _ in range(3):  # Each of the two waits for the other to open the fifo.
            two_places.send(run(1, "cat", fifo), run(2, "sh", "-c", 'echo met >"$0"', fifo))
            for _ in range(2):
                assert two_places.receive(Done).status is TaskStatus.FINISHED
        keepers = keepers_of(two_places)
        assert len(keepers) == 2
        for keeper in keepers:
            assert descriptors_of(keeper.pid).count("socket") == 1, "its own, and not the other's"
            assert os.getsid(keeper.pid) == keeper.pid

    def test_each_place_has_a_number(self, two_places: Monitor, fifo: str) -> None:
        tasks = [
            CommandTask(["sh", "-c", 'cat "$1"; echo $0', "", fifo], slot_at=[(3, 0)]),
            CommandTask(["sh", "-c", 'echo >"$1"; echo $0', "", fifo], slot_at=[(3, 0)]),
        ]
        for _ in range(2):  # Each of the two waits for the other to open the fifo.
            two_places.send(*(Run(number, 0, encode_task(task)) for number, task in enumerate(tasks)))
            ends = [decode_result(read(two_places.receive(Done).result)) for _ in tasks]
            assert {end.stdout.split()[-1] for end in ends} == {b"1", b"2"}
        two_places.send(Run(1, 0, encode_task(CommandTask(["echo", "-"], slot_at=[(1, 1), (1, 1)]))))
        assert decode_result(read(two_places.receive(Done).result)).stdout == b"-11\n"

    def test_orphans_are_reaped_while_a_command_runs(self, monitor: Monitor, fifo: str) -> None:
        monitor.send(run(1, "sh", "-c", '(setsid sh -c true &); cat "$0"', fifo))
        with Path(fifo).open("w"):
            (keeper,) = keepers_of(monitor)
            wait_until(lambda: [child.name() for child in keeper.children()] == ["sh"])
            (command,) = keeper.children()
            wait_until(lambda: [child.name() for child in command.children()] == ["cat"])
        assert monitor.receive(Done).status is TaskStatus.FINISHED

    def test_the_largest_possible_task(self, monitor: Monitor, tmp_path: Path) -> None:
        argv = ["sh", "-c", "echo $#", *["x" * STRING_BYTES_MAX] * 7]
        for _ in range(2):
            monitor.send(Run(1, 0, store(encode_task(CommandTask(argv)), str(tmp_path))))
            assert decode_result(read(monitor.receive(Done).result)).stdout == b"6\n"


class TestKill:
    def test_a_late_kill_does_not_hit_the_next_command(self) -> None:
        """The kill is on its way while the command before ends, which the executor cannot know."""
        code = """if True:
            import fcntl, os, struct, termios
            from frontends.command.keeper import Start, receive_report, send_kill, send_run, start_keeper
            from frontends.command.tasks import CommandTask, encode_task
            from sparrow_py.limits.task_limits import NO_LIMITS
            from tests.support.waiting import wait_until

            def all_read():
                return fcntl.ioctl(keeper, termios.TIOCOUTQ, bytes(4)) == bytes(4)

            pid, keeper = start_keeper({"PATH": os.environ["PATH"]}, NO_LIMITS)
            keeper.setblocking(True)
            theirs, ours = os.pipe()
            for number in (1, 2, 3):
                task = encode_task(CommandTask(["sh", "-c", "read line; exit 5"]))
                send_kill(keeper, number - 1)
                send_run(keeper, number, Start(task, [theirs, 1, 2], True))
                send_kill(keeper, number - 1)
                wait_until(all_read)
                if number == 3:
                    send_kill(keeper, number)
                else:
                    os.write(ours, b"go\\n")
                report = receive_report(keeper)
                print(report.run, report.exit_code_or_error())
            keeper.close()
            print(os.waitpid(pid, 0)[1])
        """
        answer = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        assert (answer.stdout, answer.stderr) == (f"1 5\n2 5\n3 {-signal.SIGKILL}\n0\n", "")

    def test_a_keeper_goes_on_after_a_kill(self, monitor: Monitor, fifo: str) -> None:
        result(monitor, "true")
        before = keepers_of(monitor)
        for number in range(5):
            monitor.send(run(number, "sh", "-c", f"{DAEMON}; sleep 1000", fifo))
            daemon = int(Path(fifo).read_text())
            monitor.send(Kill([number, number]))
            assert monitor.receive(Done).error == "it was killed"
            assert gone(daemon)
        assert keepers_of(monitor) == before

    def test_a_daemon_is_killed_before_the_outcome_is_sent_and_the_next_command_lives(
        self, monitor: Monitor, tmp_path: Path, fifo: str
    ) -> None:
        for number in range(5):
            mark = tmp_path / f"mark{number}"
            os.mkfifo(mark)
            written = result(monitor, "sh", "-c", f'{DAEMON}; cat "$0"', str(mark)).stdout
            assert gone(int(written))
            monitor.send(run(2, "cat", fifo))
            Path(fifo).write_text("untouched")
            assert decode_result(read(monitor.receive(Done).result)).stdout == b"untouched"
        assert len(keepers_of(monitor)) == 1


class TestDeath:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_of_an_idle_keeper(self, monitor: Monitor, number: signal.Signals) -> None:
        result(monitor, "true")
        (keeper,) = keepers_of(monitor)
        before = descriptors_of(monitor.process.pid)
        keeper.send_signal(number)
        wait_until(lambda: keepers_of(monitor) == [], "it to be reaped")
        for _ in range(3):
            assert result(monitor, "echo", "on").stdout == b"on\n"
        assert len(keepers_of(monitor)) == 1
        assert descriptors_of(monitor.process.pid) == before

    def test_of_an_idle_keeper_that_the_executor_has_not_seen_yet(self, monitor: Monitor) -> None:
        result(monitor, "true")
        (keeper,) = keepers_of(monitor)
        monitor.process.send_signal(signal.SIGSTOP)
        monitor.send(run(1, "true"))
        keeper.kill()
        wait_until(lambda: gone(keeper.pid))
        monitor.process.send_signal(signal.SIGCONT)
        assert monitor.receive(Done).status is TaskStatus.FINISHED

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_of_the_executor(self, two_places: Monitor, tmp_path: Path, fifo: str, number: signal.Signals) -> None:
        """One of its keepers is idle, one has a command with a daemon."""
        two_places.send(run(1, "cat", fifo), run(2, "sh", "-c", 'echo met >"$0"', fifo))
        for _ in range(2):
            two_places.receive(Done)
        two_places.send(run(3, "sh", "-c", f"{DAEMON}; sleep 1000", fifo))
        daemon = int(Path(fifo).read_text())
        executor = psutil.Process(two_places.process.pid)
        # The daemon may write its number before the shell has started the last process.
        wait_until(lambda: len(executor.children(recursive=True)) == 5)
        below = executor.children(recursive=True)
        assert daemon in {process.pid for process in below}
        two_places.process.send_signal(number)
        for process in below:
            wait_until(lambda process=process: gone(process.pid), f"{process} to end")


def fail_until_there_are_descriptors(monitor: Monitor, pid: int) -> None:
    """Allow this process more and more descriptors, until a command runs, so that each that it needs is missing once.

    Check that failures leave nothing behind, and then allow the process all its descriptors again.
    """
    before = descriptors_of(pid)
    _, hard = enough = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    errors = []
    for limit in range(3, hard):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
        answer = done(monitor, "true")
        if answer.status is TaskStatus.FINISHED:
            break
        errors.append(answer.error)
        assert descriptors_of(pid) == before
    resource.prlimit(pid, resource.RLIMIT_NOFILE, enough)
    assert len(errors) > DESCRIPTORS and set(errors) == {NO_DESCRIPTORS}
    assert result(monitor, "echo", "on").stdout == b"on\n"


class TestScarcity:
    @pytest.mark.parametrize("idle", [True, False])
    def test_an_executor_without_descriptors(self, monitor: Monitor, idle: bool) -> None:
        """With a keeper, and without."""
        if idle:
            result(monitor, "true")
        answers(monitor)
        pid = monitor.process.pid
        before = descriptors_of(pid)
        fail_until_there_are_descriptors(monitor, pid)
        assert descriptors_of(pid) == (before if idle else sorted([*before, "socket"])), "that to its keeper"

    def test_a_keeper_without_descriptors(self, monitor: Monitor) -> None:
        result(monitor, "true")
        (keeper,) = keepers_of(monitor)
        before = descriptors_of(keeper.pid)
        fail_until_there_are_descriptors(monitor, keeper.pid)
        assert keepers_of(monitor) == [keeper]
        assert descriptors_of(keeper.pid) == before

    def test_a_keeper_that_is_stopped_holds_up_its_own_command_and_no_other(
        self, two_places: Monitor, tmp_path: Path
    ) -> None:
        result(two_places, "true")
        (keeper,) = keepers_of(two_places)
        keeper.suspend()
        argv = ["sh", "-c", "echo $#", *["x" * STRING_BYTES_MAX] * 7]
        two_places.send(Run(1, 0, store(encode_task(CommandTask(argv)), str(tmp_path))), run(2, "true"))
        assert two_places.receive(Done).run == 2
        keeper.resume()
        answer = two_places.receive(Done)
        assert (answer.run, decode_result(read(answer.result)).stdout) == (1, b"6\n")
