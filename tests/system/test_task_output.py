"""What tasks of an embedded cluster print reaches the program's `sys.stdout` and `sys.stderr`, before their results."""

import contextlib
import ctypes
import io
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrow_py import AsyncClient, CallStage, Client, InvalidRequest, JobSpec, LocalCluster, TaskLost
from tests.support.gated_stream import GatedStream
from tests.support.suites import rest_after
from tests.support.tasks import hold
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
LINE_BYTES = 5_000_000
FLOOD_LINES = 200_000


ABSENT = ["--executor", "absent=/no/such/command"]
"""An app whose executors cannot be started, of which a node monitor warns."""


class Seen:
    """All that the program's streams were given."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._out = self._errors = ""

    def _read(self) -> None:
        out, errors = self._capsys.readouterr()
        self._out += out
        self._errors += errors

    @property
    def out(self) -> str:
        self._read()
        return self._out

    @property
    def errors(self) -> str:
        self._read()
        return self._errors


def chatter(number: int) -> int:
    """Writes in every way that there is, to both streams."""
    print("print", number)
    os.write(1, b"descriptor\n")
    subprocess.run(["echo", "child"], check=True)
    ctypes.CDLL(None).puts(b"C library")
    logging.getLogger("tests").warning("logged")
    print("error", file=sys.stderr)
    print("without end", end="")
    return number


def test_all_that_a_task_writes_is_seen_before_its_result(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):  # More than once by the same worker.
        assert client.submit(chatter, number).result() == number
        out, errors = capsys.readouterr()
        assert out.splitlines() == [f"print {number}", "descriptor", "child", "C library", "without end"]
        assert (out[-1], sorted(errors.splitlines())) == ("\n", ["error", "logged"])


def test_lines_of_several_tasks_are_marked(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.submit_calls(print, [(number,) for number in range(20)], name="sweep").results()
    expected = [f"[sweep {number}] {number}" for number in range(20)]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(expected)

    def work(number: int) -> None:
        print(number)

    list(client.map(work, range(5)))
    assert sorted(capsys.readouterr().out.splitlines()) == [f"[work {number}] {number}" for number in range(5)]
    client.submit_stages([CallStage("first", print, [("a",)]), CallStage("then", print, [("b",)])]).results()
    assert sorted(capsys.readouterr().out.splitlines()) == ["[first 0] a", "[then 1] b"]
    client.submit(print, "alone").result()
    assert capsys.readouterr().out == "alone\n"


def test_a_task_beside_others_is_marked(client: Client, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = client.submit(hold, gate)
    client.submit(print, "beside").result()
    gate.touch()
    held.result()
    client.submit(print, "alone").result()
    assert capsys.readouterr().out == "[print 0] beside\nalone\n"


async def test_the_same_with_asyncio(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    async with AsyncClient(cluster) as client:
        await client.submit(print, "alone")
        await client.submit_calls(print, [("of two",), ("of two",)], name="two").results()
    assert sorted(capsys.readouterr().out.splitlines()) == ["[two 0] of two", "[two 1] of two", "alone"]


def test_it_goes_to_what_stands_for_standard_output_then(client: Client) -> None:
    first, second = io.StringIO(), io.StringIO()
    for stream in (first, second):  # As each cell of a notebook has its own.
        with contextlib.redirect_stdout(stream):
            client.submit(print, "here").result()
    assert (first.getvalue(), second.getvalue()) == ("here\n", "here\n")


def raw(data: bytes) -> None:
    os.write(1, data)


def long_line() -> None:
    print("x" * LINE_BYTES)


def test_bytes_that_are_no_text_and_lines_of_any_length(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.submit(print, "größer 😀 \udcff").result()
    client.submit(raw, b"\xff\xfe\n").result()
    client.submit(long_line).result()
    assert capsys.readouterr().out.splitlines() == ["größer 😀 \\udcff", "\\xff\\xfe", "x" * LINE_BYTES]


def bytes_beneath(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    assert (sys.stdout.encoding, sys.stdout.fileno(), sys.stdout.isatty(), sys.stdout.errors) == (
        "utf-8", 1, False, "backslashreplace",
    )  # fmt: skip
    assert isinstance(sys.stdout, io.TextIOBase)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    sys.stdout.close()


def test_standard_output_is_a_text_stream(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(5):
        client.submit(bytes_beneath, "written").result()
    assert capsys.readouterr().out == "written\n" * 5


def closes_descriptors() -> None:
    sys.__stdout__.close()  # type: ignore[union-attr]
    sys.__stderr__.close()  # type: ignore[union-attr]


def test_a_task_that_closes_its_streams_harms_itself_alone() -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        client.submit(closes_descriptors).result()
        with pytest.raises(ValueError, match="closed file"):
            client.submit(print, "nowhere").result()
        assert client.submit(abs, -1).result() == 1


def dies(text: str) -> None:
    print(text, end="", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_has_said_its_last_words(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TaskLost):
        client.with_options(max_attempts=1).submit(dies, "last words").result()
    seen = Seen(capsys)
    wait_until(lambda: seen.out)
    assert seen.out == "last words\n"


def leaves_a_child(gate: str) -> int:
    script = "while [ ! -e $0 ]; do sleep 0.02; done; echo late"
    return subprocess.Popen(["sh", "-c", script, gate], start_new_session=True).pid


def test_what_children_write_later_is_seen_and_they_hold_up_nothing(
    gate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen(capsys)
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        client.submit(leaves_a_child, str(gate)).result()
        gate.touch()
        wait_until(lambda: seen.out == "late\n")
        pid = client.submit(leaves_a_child, str(gate) + "-never").result()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())  # The cluster's end is that of all that it started.


def flood(progress: str) -> None:
    for number in range(FLOOD_LINES):
        print(f"line {number:10}")
    Path(progress).touch()


@pytest.mark.rest
def test_a_flood_holds_up_its_task_alone(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = GatedStream()
    monkeypatch.setattr(sys, "stdout", out)
    progress = tmp_path / "progress"
    flooding = client.submit(flood, str(progress))
    assert out.reached.wait(PATIENCE_S)
    assert list(client.map(abs, range(-100, 0))) == list(range(100, 0, -1))
    assert not (flooding.done() or progress.exists())
    out.gate.set()
    flooding.result(PATIENCE_S)
    lines = out.getvalue().splitlines()
    assert [int(re.sub(r"\[flood 0\] |line ", "", line)) for line in lines] == list(range(FLOOD_LINES))


def test_a_result_does_not_wait_for_a_stream_that_takes_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = GatedStream()
    monkeypatch.setattr(sys, "stdout", out)
    client.submit(print, "one").result(PATIENCE_S)
    client.submit(print, "two").result(PATIENCE_S)
    out.gate.set()
    client.submit(print, "three").result()
    assert out.getvalue() == "one\ntwo\nthree\n"


def logs(text: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.info(text)


def test_a_handler_of_an_earlier_task_writes_where_the_task_writes_that_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        capturing = client.with_options(capture_output=True)
        seen = []
        for number in range(3):
            future = capturing.submit(logs, f"captured {number}")
            future.result()
            seen.append(future.report.stderr)  # type: ignore[attr-defined]
            client.submit(logs, f"free {number}").result()
    assert seen == [f"captured {number}\n" for number in range(3)]
    assert capsys.readouterr() == ("", "".join(f"free {number}\n" for number in range(3)))


def long_captured() -> None:
    sys.stdout.buffer.write(b"bytes ")
    for _ in range(100):
        print("x" * 100_000)


def test_captured_output_is_kept_up_to_its_limit(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    future = client.with_options(capture_output=True).submit(long_captured)
    future.result()
    assert future.report.stdout == "bytes " + "x" * 65530  # type: ignore[attr-defined]
    assert capsys.readouterr().out == ""


def test_it_can_be_silenced_and_goes_to_the_log_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "cluster.log"
    with (
        LocalCluster(slots=1, node_options=ABSENT, forward_output=False, log_dir=tmp_path) as cluster,
        Client(cluster) as client,
    ):
        client.submit(print, "silence").result()
        client.submit_job(JobSpec([b""], app="absent"))
        wait_until(lambda: "no such command" in log.read_text())
    assert capsys.readouterr() == ("", "")
    assert "\nsilence\n" in log.read_text()


def test_a_client_has_the_option_for_the_cluster_that_it_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with Client(forward_output=False) as client:
        client.submit(print, "silence").result()
    with Client() as client:
        client.submit(print, "heard").result()
    assert capsys.readouterr() == ("heard\n", "")
    with pytest.raises(InvalidRequest, match="forward_output"):
        Client("127.0.0.1:20503", forward_output=False)


@pytest.mark.parametrize("logged", rest_after(1, False, True))
def test_warnings_of_daemons_are_seen_and_nothing_at_their_end(
    logged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen(capsys)
    with (
        LocalCluster(2, 2, slots=1, node_options=ABSENT, log_dir=tmp_path if logged else None) as cluster,
        Client(cluster) as client,
    ):
        client.submit_job(JobSpec([b""] * 2, app="absent"))
        wait_until(lambda: "no such command: /no/such/command" in seen.errors)
    assert seen.out == ""
    lines = seen.errors.splitlines()
    for line in lines:
        assert re.fullmatch(r"\[node-[01]\] .* WARNING .*absent.*", line), line
    if logged:
        log = (tmp_path / "node-0.log").read_text() + (tmp_path / "node-1.log").read_text()
        assert all(line.partition("] ")[2] in log for line in lines)
        assert " INFO " in log


def test_executors_that_are_no_python_workers_are_heard_too(capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen(capsys)
    command = f"""{sys.executable} -c "import sys; print('out'); sys.exit('error')" """
    with (
        LocalCluster(slots=1, node_options=["--executor", f"brief={command}"]) as cluster,
        Client(cluster) as client,
    ):
        client.submit_job(JobSpec([b""], app="brief"))
        wait_until(lambda: "out\n" in seen.out and "error\n" in seen.errors)


@pytest.fixture
def in_process() -> Iterator[Client]:
    with LocalCluster(in_process=True, slots=1) as cluster, Client(cluster) as client:
        yield client


def test_in_process_tasks_print_as_the_program_does(in_process: Client, capsys: pytest.CaptureFixture[str]) -> None:
    in_process.submit(print, "here").result()
    future = in_process.with_options(capture_output=True).submit(print, "captured")
    future.result()
    in_process.submit(print, "again").result()
    assert capsys.readouterr().out == "here\nagain\n"
    assert future.report.stdout == "captured\n"  # type: ignore[attr-defined]
