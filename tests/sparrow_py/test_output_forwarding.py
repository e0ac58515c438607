"""The thread that shows what a cluster's processes write, with pipes of this process in their place."""

import fcntl
import gc
import io
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

from sparrow_py.embedded import output_forwarding
from sparrow_py.embedded.output_channel import READY, OutputChannel, Page
from sparrow_py.embedded.output_forwarding import READ_BYTES, SHOWN_CHARS_MAX, OutputForwarder
from tests.support.gated_stream import GatedStream

PIPE_BYTES = 1 << 16
"""What a pipe holds."""
PATIENCE_S = 30.0


def program_stdout(monkeypatch: pytest.MonkeyPatch) -> GatedStream:
    """Made the program's standard output; its gate is open. Called by the test itself, as pytest puts its own stream
    there after the fixtures."""
    stream = GatedStream()
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


def memory(size: int, seals: int) -> int:
    """A descriptor of memory of so many bytes."""
    descriptor = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def open_descriptors() -> int:
    gc.collect()  # Of other tests.
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def listening() -> int:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        return listener.detach()


NO_PIPES: dict[str, Callable[[], int]] = {
    "a file": lambda: os.open(__file__, os.O_RDONLY),
    "endless": lambda: os.open("/dev/zero", os.O_RDONLY),
    "a directory": lambda: os.open("/", os.O_RDONLY),
    "a path": lambda: os.open("/", os.O_PATH),
    "a socket": listening,
    "a page": lambda: memory(Page.BYTES, Page.SEALS),
}


@pytest.mark.usefixtures("garbage_before")
@pytest.mark.parametrize("kind", NO_PIPES)
@pytest.mark.parametrize("shape", ["log", "process", "worker", "control", "page", "too many"])
def test_whatever_is_sent_the_others_go_on_and_nothing_stays_open(
    channel: OutputChannel, kind: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    witness = FakeWorker(channel)
    witness.settle()  # Then the descriptors that it has sent are closed.
    before = open_descriptors()
    bad, (reader, writer) = NO_PIPES[kind](), os.pipe()
    page, (control, theirs) = memory(Page.BYTES, Page.SEALS), socket.socketpair()
    with control, theirs:
        channel._send(
            {
                "log": [bad],
                "process": [reader, bad],
                "worker": [reader, bad, control.fileno(), page],
                "control": [reader, reader, bad, reader if kind == "a socket" else page],
                "page": [reader, reader, control.fileno(), reader if kind == "a page" else bad],
                "too many": [reader] * 5,
            }[shape]
        )
    for descriptor in (bad, reader, writer, page):
        os.close(descriptor)
    for _ in range(3):  # By then it was seen that nobody writes to the good pipe of a bad pair.
        os.write(witness.stdout, b"fine\n")
        witness.settle()
    assert out.getvalue() == "fine\n" * 3
    assert open_descriptors() == before
    witness.end()


@pytest.mark.usefixtures("garbage_before")
def test_a_path_to_a_socket_is_no_control(channel: OutputChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    out = program_stdout(monkeypatch)
    witness = FakeWorker(channel)
    witness.settle()  # Then the descriptors that it has sent are closed.
    before = open_descriptors()
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/s")
        path, page, pipe = os.open(f"{directory}/s", os.O_PATH), memory(Page.BYTES, Page.SEALS), os.pipe()
        channel._send([pipe[0], pipe[0], path, page])
        for descriptor in (path, page, *pipe):
            os.close(descriptor)
    FakeWorker(channel).end()  # It comes after that message.
    for _ in range(3):
        os.write(witness.stdout, b"fine\n")
        witness.settle()
    assert out.getvalue() == "fine\n" * 3
    assert open_descriptors() == before
    witness.end()


def test_a_message_without_a_name_is_not_the_end_of_the_channel(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    os.close(forwarder.log_pipe(""))
    worker = FakeWorker(channel)
    os.write(worker.stdout, b"fine\n")
    worker.settle()
    assert out.getvalue() == "fine\n"
    worker.end()


def test_a_daemons_name_is_on_one_line(forwarder: OutputForwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    pipe = forwarder.log_pipe("node\n\x1b[2J")
    channel = OutputChannel(os.dup(forwarder.channel.fileno()))
    FakeWorker(channel).end()  # It comes after the log, which therefore is read.
    channel.close()
    os.write(pipe, b"WARNING\n")
    os.close(pipe)
    forwarder.stop()
    assert errors.getvalue() == "[node\\n\\x1b[2J] WARNING\n"


def test_who_keeps_the_pipe_cannot_make_the_program_wait(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    (reader, writer), errors, (control, theirs) = os.pipe(), os.pipe(), socket.socketpair()
    control.settimeout(PATIENCE_S)
    page = memory(Page.BYTES, Page.SEALS)
    with control, theirs:
        channel._send([reader, errors[0], theirs.fileno(), page])
        assert control.recv(1) == READY
        os.set_blocking(reader, True)
        control.send(b"\x07")  # The pipe is empty.
        assert control.recv(1) == b"\x07"
        os.write(writer, b"fine\n")
        control.send(b"\x08")
        assert control.recv(1) == b"\x08"
        assert out.getvalue() == "[ 0] fine\n"
    for descriptor in (reader, writer, *errors, page):
        os.close(descriptor)


def test_a_worker_that_asks_and_closes_its_pipes_at_once_ends_nothing_else(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker, witness = FakeWorker(channel), FakeWorker(channel)
    out.gate.clear()
    os.write(witness.stdout, b"held up\n")
    assert out.reached.wait(PATIENCE_S)
    worker.control.send(b"\x07")
    worker.end()
    out.gate.set()
    for _ in range(2):
        witness.settle()
    assert out.getvalue() == "held up\n"
    witness.end()


def test_what_goes_wrong_with_one_worker_ends_that_one(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    broken = FakeWorker(channel)
    for stream in forwarder._reader._streams:
        monkeypatch.setattr(stream, "lines", None)
    worker = FakeWorker(channel)
    os.write(broken.stdout, b"lost\n")
    assert broken.control.recv(1) == b""
    with pytest.raises(BrokenPipeError):
        os.write(broken.stdout, b"nobody reads this")
    os.write(worker.stdout, b"fine\n")
    worker.settle()
    assert out.getvalue() == "fine\n"
    worker.end()
    broken.end()


def test_others_are_answered_between_the_pieces_of_a_flood(
    channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    flood, other = FakeWorker(channel), FakeWorker(channel)
    flood.page.begin("n" * 200, 1)
    other.page.begin("other", 2)
    out.gate.clear()
    os.write(flood.stdout, b"\n")
    assert out.reached.wait(PATIENCE_S)
    os.write(flood.stdout, b"\n" * (PIPE_BYTES - 1))
    os.write(other.stdout, b"line\n")
    other.control.send(b"\x07")
    out.gate.set()
    assert other.control.recv(1) == b"\x07"
    flood.settle()
    shown = out.getvalue()
    assert shown.count("\n") == PIPE_BYTES + 1
    assert shown.index("[other 2] line\n") < 4 * SHOWN_CHARS_MAX < len(shown) // 4
    for worker in (flood, other):
        worker.end()


def test_the_end_shows_all_of_what_was_read(
    forwarder: OutputForwarder, channel: OutputChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = program_stdout(monkeypatch)
    worker = FakeWorker(channel)
    worker.page.begin("flood", 1)
    os.write(worker.stdout, b"\n" * PIPE_BYTES)
    forwarder.stop()
    assert out.getvalue() == "[flood 1] \n" * PIPE_BYTES
    worker.end()


@pytest.mark.timeout(PATIENCE_S)  # Rather than wait for ever.
def test_a_channel_that_nobody_reads_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = OutputChannel(theirs.detach())
    with ours, pytest.raises(BlockingIOError):
        while True:
            channel._send([ours.fileno()])
    channel.close()
