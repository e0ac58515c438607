"""The thread that shows what a cluster's processes write, with pipes of this process in their place."""

import io
import os
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from sparrow_py import output_forwarding
from sparrow_py.output_channel import READY, OutputChannel, Page
from sparrow_py.output_forwarding import READ_BYTES, OutputForwarder

PIPE_BYTES = 1 << 16
"""What a pipe holds."""
PATIENCE_S = 30.0


class Gated(io.StringIO):
    """A stream that takes nothing until `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.reached = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.gate.wait(PATIENCE_S)
        return super().write(text)


def program_stdout(monkeypatch: pytest.MonkeyPatch) -> Gated:
    """Made the program's standard output; its gate is open. Called by the test itself, as pytest puts its own stream
    there after the fixtures."""
    stream = Gated()
    stream.gate.set()
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


@pytest.fixture
def forwarder() -> Iterator[OutputForwarder]:
    forwarder = OutputForwarder()
    yield forwarder
    forwarder.stop()


@pytest.fixture
def channel(forwarder: OutputForwarder) -> Iterator[OutputChannel]:
    """What a daemon has."""
    channel = OutputChannel(os.dup(forwarder.channel.fileno()))
    yield channel
    channel.close()


class FakeWorker:
    """A worker's end, without being one: its streams are pipes and not this process's own."""

    def __init__(self, channel: OutputChannel) -> None:
        out, errors = os.pipe(), os.pipe()
        self.control, theirs = socket.socketpair()
        self.control.settimeout(PATIENCE_S)
        self.page, page = Page.create()
        with theirs:
            channel._send([out[0], errors[0], theirs.fileno(), page])
        for descriptor in (out[0], errors[0], page):
            os.close(descriptor)
        self.stdout, self.stderr = out[1], errors[1]
        self.answer = self.control.recv(1)

    def settle(self) -> None:
        self.control.send(b"\x07")
        assert self.control.recv(1) == b"\x07"

    def end(self) -> None:
        os.close(self.stdout)
        os.close(self.stderr)
        self.control.close()
        self.page.close()


def test_what_is_written_is_shown_before_the_answer(channel: OutputChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    out = program_stdout(monkeypatch)
    worker = FakeWorker(channel)
    assert worker.answer == READY
    os.write(worker.stdout, b"one\ntwo")
    worker.settle()
    assert out.getvalue() == "one\ntwo\n"
    os.write(worker.stdout, b"thr")
    worker.end()


def test_each_stream_goes_to_what_the_program_has_there_at_that_time(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker = FakeWorker(channel)
    os.write(worker.stdout, b"before\n")
    worker.settle()
    later, errors = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", later)
    monkeypatch.setattr(sys, "stderr", errors)
    os.write(worker.stdout, b"after\n")
    os.write(worker.stderr, b"error\n")
    worker.settle()
    assert (out.getvalue(), later.getvalue(), errors.getvalue()) == ("before\n", "after\n", "error\n")
    worker.end()


def test_lines_are_marked_while_there_may_be_several_tasks(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker, client, other = FakeWorker(channel), object(), object()

    def shown() -> str:
        before = len(out.getvalue())
        os.write(worker.stdout, b"line\n")
        worker.settle()
        return out.getvalue()[before:]

    assert shown() == "line\n"  # It runs no task.
    worker.page.begin("sweep", 3)
    assert shown() == "[sweep 3] line\n"  # Whose it is, is not known here.
    forwarder.tasks.submitted(client, several=False)
    assert shown() == "line\n"
    forwarder.tasks.submitted(other, several=True)
    assert shown() == "[sweep 3] line\n"
    worker.page.begin("other\n", 0)
    assert shown() == "[other\\n 0] line\n"
    forwarder.tasks.ended(other)
    assert shown() == "line\n"
    worker.end()


def test_the_worker_learns_that_something_was_read_between_its_questions(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker = FakeWorker(channel)
    out.reached.clear()
    os.write(worker.stdout, b"unasked\n")
    assert out.reached.wait(PATIENCE_S)
    assert worker.page.unsettled
    worker.settle()
    assert not worker.page.unsettled
    worker.end()


def test_the_beginning_of_a_line_of_a_worker_that_ends_is_shown(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    killed, other = FakeWorker(channel), FakeWorker(channel)
    os.write(killed.stdout, b"last wor")
    out.reached.clear()
    killed.end()
    assert out.reached.wait(PATIENCE_S)
    other.settle()
    assert out.getvalue() == "last wor\n"
    other.end()


def test_workers_that_end_all_at_once_are_forgotten(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    workers, witness = [FakeWorker(channel) for _ in range(10)], FakeWorker(channel)
    out.gate.clear()
    os.write(witness.stdout, b"held up\n")
    assert out.reached.wait(PATIENCE_S)
    for worker in workers:
        os.write(worker.stdout, b"the end")
        worker.end()
    out.gate.set()
    for _ in range(2):  # By the second time their ends were seen.
        witness.settle()
    assert sorted(out.getvalue().splitlines()) == ["held up", *["the end"] * 10]
    assert len(forwarder._reader._streams) == 2
    witness.end()


def test_a_stream_that_takes_nothing_holds_up_who_writes(
    forwarder: OutputForwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    channel = OutputChannel(os.dup(forwarder.channel.fileno()))
    out.gate.clear()
    with channel.pipes() as (stdout, _):
        os.set_blocking(stdout, False)
        written = os.write(stdout, b"x\n")
        assert out.reached.wait(PATIENCE_S)
        with pytest.raises(BlockingIOError):
            while True:
                written += os.write(stdout, b"y" * 1023 + b"\n")
        assert written <= READ_BYTES + PIPE_BYTES
        out.gate.set()
    channel.close()
    forwarder.stop()
    assert len(out.getvalue()) == written


@pytest.mark.parametrize("broken", [None, io.TextIOWrapper(io.BytesIO(), "ascii"), object()])
def test_any_stream_of_the_program_is_borne(
    channel: OutputChannel, broken: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = FakeWorker(channel)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", broken)
        patched.setattr(sys, "__stdout__", None)
        os.write(worker.stdout, "späte\n".encode())
        worker.settle()
    if isinstance(broken, io.TextIOWrapper):
        broken.seek(0)
        assert broken.read() == "sp\\xe4te\n"
    worker.end()


def test_where_the_program_has_closed_its_stream_the_first_one_is_used(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "__stdout__", out)
    monkeypatch.setattr(sys, "stdout", closed)
    worker = FakeWorker(channel)
    os.write(worker.stdout, b"seen\n")
    worker.settle()
    assert out.getvalue() == "seen\n"
    worker.end()


def test_the_end_shows_what_lies_in_pipes_that_others_hold_open(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker = FakeWorker(channel)
    out.gate.clear()
    os.write(worker.stdout, b"one\n")
    assert out.reached.wait(PATIENCE_S)
    os.write(worker.stdout, b"two\nthr")
    out.gate.set()
    forwarder.stop()
    forwarder.stop()
    assert out.getvalue() == "one\ntwo\nthr\n"
    with pytest.raises(BrokenPipeError):
        os.write(worker.stdout, b"nobody reads this")
    worker.end()


def test_logs_are_shown_until_they_are_not_wanted(forwarder: OutputForwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    pipe = forwarder.log_pipe("node-0")
    assert not os.get_blocking(pipe)
    channel = OutputChannel(os.dup(forwarder.channel.fileno()))
    FakeWorker(channel).end()  # It comes after the log, which therefore is read.
    channel.close()
    os.write(pipe, b"WARNING: it happened\n")
    forwarder.ignore_logs()
    os.write(pipe, b"WARNING: the end\n")
    os.close(pipe)
    forwarder.stop()
    assert errors.getvalue() == "[node-0] WARNING: it happened\n"


def test_what_is_more_than_can_be_read_is_refused(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FakeWorker(channel)
    with monkeypatch.context() as patched:
        patched.setattr(output_forwarding, "PIPES_MAX", 3)
        second = FakeWorker(channel)
    with monkeypatch.context() as patched:  # It has the channel, orders, and three of the first worker.
        patched.setattr(forwarder._reader, "_files_max", 5)
        third = FakeWorker(channel)
        patched.setattr(forwarder._reader, "_files_max", 6)
        fourth = FakeWorker(channel)
    assert [worker.answer for worker in (first, second, third, fourth)] == [READY, b"", b"", READY]
    for worker in (first, second, third, fourth):
        worker.end()


def test_what_is_no_workers_message_does_no_harm(channel: OutputChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    out = program_stdout(monkeypatch)
    reader, writer = os.pipe()
    with open(os.devnull) as nothing:  # noqa: PTH123
        channel._send([nothing.fileno()] * 3)
        channel._send([reader, reader, nothing.fileno(), nothing.fileno()])
        channel._send([])
    os.close(reader)
    os.close(writer)
    worker = FakeWorker(channel)
    os.write(worker.stdout, b"fine\n")
    worker.settle()
    assert out.getvalue() == "fine\n"
    worker.end()


def test_a_page_says_no_task_where_it_has_nonsense() -> None:
    page, descriptor = Page.create()
    other = Page(descriptor)
    assert other.mark == ""
    page.begin("ä" * 300, 1)
    assert other.mark == f"[{'ä' * 128} 1] "
    page.words[2] = 1 << 40
    assert other.mark == ""
    page.close()
    other.close()


def test_the_forked_copy_of_a_program_stops_nothing(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker = FakeWorker(channel)
    with monkeypatch.context() as patched:
        patched.setattr(forwarder._reader, "_process", os.getpid() + 1)
        forwarder._reader.stop()
    os.write(worker.stdout, b"goes on\n")
    worker.settle()
    assert out.getvalue() == "goes on\n"
    worker.end()
