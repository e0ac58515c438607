"""Planes `templates` and `central` on real node monitors: answers are those of `inline`, and nothing is left."""

from __future__ import annotations

import io
import runpy
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import pytest

from frontends.dataflow import Dataflow, InvalidProgram
from sparrow_py import Client, LocalCluster
from sparrow_py.errors import RemoteTraceback
from tests.frontends.dataflow.test_live import (
    Gated,
    _add_one,
    _copy,
    _double,
    _fail_at_five,
    _interrupt_when,
    _sleep,
    answer_of,
    assert_equal,
    counting,
    driver_of,
    killed_at_random_moments,
    local,
    moves_of,
    runner_of,
    workers_of,
)
from tests.support.dataflow_random import random_program
from tests.support.documents import ROOT
from tests.support.suites import rest_after
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(params=rest_after(1, "templates", "central"))
def plane(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=rest_after(1, ("one node", "templates"), ("two nodes, TCP", "templates"), ("one node", "central")),
    ids="-".join,
)
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A cluster whose workers may be killed, the transport, and the plane."""
    nodes, plane = request.param
    if nodes == "one node":
        return {"cluster": request.getfixturevalue("small"), "plane": plane}
    return {"cluster": request.getfixturevalue("two_nodes"), "transport": "tcp", "plane": plane}


def test_a_program_answers_as_inline(where: dict[str, Any]) -> None:
    with local(**where) as df:
        assert_equal(df.run(counting(df, 10)[0]), answer_of(10))
        assert_equal(df.run(counting(df, 5)[0]), answer_of(5))


@pytest.mark.rest
def test_random_programs_answer_as_inline(where: dict[str, Any]) -> None:
    for seed in (1, 2):
        answers = []
        for df in (Dataflow(partitions=4, progress=False), local(**where)):
            with df:
                _, program = random_program(seed, df=df)

                def all_of_it(program: Any = program, datasets: Any = tuple(df._datasets[1:])) -> Any:
                    program()
                    return datasets

                answers.append(df.run(all_of_it))
        assert_equal(*answers)


@pytest.mark.rest
def test_an_example_agrees_with_numpy(
    small: LocalCluster, plane: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARROW_SCHEDULER", small.addresses[0])
    options = ["--vertices", "500", "--edges", "4000", "--side", "3"]
    monkeypatch.setattr(sys, "argv", ["pagerank", "--check", "--plane", plane, *options])
    runpy.run_path(str(ROOT / "examples" / "dataflow" / "pagerank.py"), run_name="__main__")
    assert "largest difference from numpy" in capsys.readouterr().out


def test_data_stay_from_run_to_run_and_cells_define_stages_anew(small: LocalCluster, plane: str) -> None:
    answers = []
    for df in (Dataflow(partitions=4, progress=False), local(small, plane=plane)):
        with df:
            X, W = df.partition(np.arange(8.0)), df.replicate(np.zeros(1), name="W")
            one = df.single(np.zeros(1))
            change = df.stage(writes=[X], name="change")(_add_one)
            tell = df.stage(reads=[one], writes=[W], name="tell")(_tell)
            df.run(lambda change=change, tell=tell: (change(), tell()))  # type: ignore[misc]
            change = df.stage(writes=[X], name="change")(_double)
            Y = df.empty(2, like=X)
            copy = df.stage(reads=[X], writes=[Y], name="copy")(_copy)
            grow = df.stage(reads=[W], writes=[X], name="grow")(_grow)

            def program(change: Any = change, copy: Any = copy, grow: Any = grow, Y: Any = Y, W: Any = W) -> Any:
                change()
                grow()
                copy()
                return {"Y": Y, "W": W, "seven": 7}

            answers.append(df.run(program))
    assert np.array_equal(answers[0]["Y"], answers[1]["Y"]) and answers[1]["seven"] == 7
    assert np.array_equal(answers[1]["W"], [5.0]) and np.array_equal(answers[0]["W"], [5.0])


def _tell(one: Any, w: Any) -> None:
    w[0] = one[0] + 5


def _grow(w: Any, x: Any) -> None:
    x += w[0]


def test_an_exception_of_a_stage_is_raised_as_itself_and_the_next_run_finds_data_as_before(
    small: LocalCluster, plane: str
) -> None:
    with local(small, plane=plane) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)
        df.run(change)
        bad = df.stage(writes=[X], name="bad")(_fail_at_five)

        def program() -> Any:
            change()
            bad()

        with pytest.raises(ZeroDivisionError) as caught:
            df.run(program)
        assert "in stage bad, partition 1, call 1 of the program" in caught.value.__notes__[0]
        assert isinstance(caught.value.__cause__, RemoteTraceback) and "_fail_at_five" in str(caught.value.__cause__)
        assert np.array_equal(df.run(lambda: X), np.arange(8.0) + 1)


def test_an_exception_of_the_program_is_the_one_that_was_raised(small: LocalCluster, plane: str) -> None:
    with local(small, plane=plane) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)

        def program() -> Any:
            change()
            df.barrier()
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine") as caught:
            df.run(program)
        assert caught.traceback[-1].name == "program"
        with pytest.raises(InvalidProgram, match="stage change has no parameter by"):
            df.run(lambda: change(by=1))
        assert np.array_equal(df.run(lambda: X), np.arange(8.0))


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "no space")


def test_what_the_programs_process_cannot_do_ends_the_run_and_not_the_next_one(
    small: LocalCluster, plane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local(small, plane=plane) as df:
        X = df.partition(np.arange(8.0))
        say = df.stage(writes=[X], name="say")(lambda x: print("said"))

        def program() -> None:
            for _ in range(1000):
                say()
                df.barrier()

        with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
            patched.setattr(sys, "stdout", _Full())
            df.run(program)
        assert np.array_equal(df.run(lambda: X), np.arange(8.0))


def test_a_load_that_fails_ends_the_run_and_the_next_one_tries_again(
    small: LocalCluster, plane: str, tmp_path: Path
) -> None:
    data = str(tmp_path / "data.npy")
    with local(small, plane=plane) as df:
        rows = df.load(lambda index: np.load(data), partitions=2)
        with pytest.raises(FileNotFoundError):
            df.run(lambda: rows)
        np.save(data, np.arange(3.0))
        assert np.array_equal(df.run(lambda: rows), [0, 1, 2, 0, 1, 2])


def test_what_stages_and_the_program_print_is_printed_once_although_a_worker_is_killed(
    where: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with local(**where, snapshot_dir=tmp_path, snapshot_every_s=0.05) as df:
        X = df.partition(np.arange(8.0))
        say = df.stage(reads=[X], name="say")(lambda x: print("partition", int(x[0])))
        gated = Gated(df, tmp_path / "gate", pause_s=0.001)
        loop = gated.program

        def program() -> Any:
            print("begins")
            say()
            df.barrier()
            return loop()

        gated.program = program
        with gated:
            wait_until(gated.runs)
            wait_until(lambda: list(tmp_path.glob("*/snapshot-*/whole")))
            Random(1).choice(workers_of(where["cluster"])).kill()
            wait_until(lambda: gated.runs(1))
    gated.check()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["begins", *(f"partition {index}" for index in (0, 2, 4, 6))]


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_killed_worker_changes_no_answer(snapshots: bool, where: dict[str, Any], tmp_path: Path) -> None:
    options = {"snapshot_dir": tmp_path, "snapshot_every_s": 0.05} if snapshots else {}
    chance = Random(1)
    with local(**where, **options) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
        for losses in range(2):
            wait_until(lambda losses=losses: gated.runs(losses))  # type: ignore[misc]
            wait_until(lambda: not snapshots or list(tmp_path.glob("*/snapshot-*/whole")))
            chance.choice(workers_of(where["cluster"])).kill()
        wait_until(lambda: gated.runs(2))
    gated.check()


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(20))
def test_a_worker_killed_at_a_random_moment_changes_no_answer(
    seed: int, plane: str, request: pytest.FixtureRequest
) -> None:
    killed_at_random_moments(request, plane, seed)


def test_a_killed_controller_is_replaced_and_changes_no_answer(where: dict[str, Any], tmp_path: Path) -> None:
    with local(**where) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
        wait_until(gated.runs)
        first = driver_of(df)._controller
        first.kill()
        wait_until(lambda: driver_of(df)._controller is not first)
        runner_of(df).progress = None
        wait_until(gated.runs)
        wait_until(lambda: len(workers_of(where["cluster"])) == 2)
    gated.check()


@pytest.mark.rest
def test_a_node_that_drains_loses_nothing(plane: str, tmp_path: Path) -> None:
    with LocalCluster(node_monitors=2, slots=1, log_dir=tmp_path) as cluster:
        with local(cluster, plane=plane, lease_s=0.2) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
            wait_until(gated.runs)
            psutil.Process(cluster.node_processes[0].pid).terminate()
            wait_until(lambda: moves_of(df) > 0)
            wait_until(lambda: runner_of(df).progress.workers == 1)  # type: ignore[union-attr]
            assert runner_of(df).progress.rollbacks == 0  # type: ignore[union-attr]
        gated.check()


@pytest.mark.rest
def test_workers_yield_to_another_users_backlog_and_come_back(small: LocalCluster, plane: str, tmp_path: Path) -> None:
    with Client(small, user="ada") as ada, Client(small, user="bob") as bob:
        with local(ada, plane=plane, lease_s=0.1) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
            wait_until(gated.runs)
            for _ in range(2):
                bob.gather([bob.submit(time.sleep, 0.05) for _ in range(8)])
            wait_until(lambda: gated.runs() and runner_of(df).progress.workers == 2)  # type: ignore[union-attr]
        gated.check()


@pytest.mark.rest
def test_the_last_worker_that_yields_leaves_a_snapshot_and_the_program_goes_on_from_it(
    plane: str, tmp_path: Path
) -> None:
    with LocalCluster(slots=1, log_dir=tmp_path) as cluster, Client(cluster, user="bob") as bob:
        options = {"plane": plane, "workers": 1, "lease_s": 0.1}
        with local(cluster, **options) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
            wait_until(gated.runs)
            assert bob.gather([bob.submit(abs, -1) for _ in range(3)]) == [1, 1, 1]
            runner_of(df).progress = None
            wait_until(gated.runs)
            assert runner_of(df).progress.rollbacks == 0  # type: ignore[union-attr]
        gated.check()


def test_a_worker_that_yields_between_two_runs_leaves_its_data(plane: str, tmp_path: Path) -> None:
    with (
        LocalCluster(slots=2, log_dir=tmp_path) as cluster,
        Client(cluster, user="bob") as bob,
        local(cluster, plane=plane, lease_s=0.1) as df,
    ):
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)
        df.run(change)
        bob.gather([bob.submit(time.sleep, 0.05) for _ in range(8)])
        assert np.array_equal(df.run(lambda: (change(), X)[1]), np.arange(8.0) + 2)


@pytest.mark.rest
def test_ctrl_c_ends_everything_and_the_dataflow_can_be_used_again(
    small: LocalCluster, plane: str, tmp_path: Path
) -> None:
    with local(small, plane=plane) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)
        df.run(change)
        endless = df.stage(writes=[X], name="endless")(_sleep)
        interrupting = threading.Thread(target=_interrupt_when, args=((tmp_path / "begun").exists,))
        begun = str(tmp_path / "begun")
        begin = df.stage(writes=[X], name="begin")(lambda x: Path(begun).touch())
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            df.run(lambda: (begin(), endless()))
        interrupting.join()
        wait_until(lambda: workers_of(small) == [])
        assert np.array_equal(df.run(lambda: X), np.arange(8.0) + 1)


@pytest.mark.rest
def test_a_costly_partition_has_others_move_away(small: LocalCluster, plane: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with local(small, plane=plane, partitions=6) as df:
        X = df.partition(np.arange(6.0))
        total = df.single(np.zeros(1))
        work = df.stage(writes=[X], name="work")(lambda x: time.sleep(0.02 if x[0] == 0 else 0.001))
        add = df.reduce(X, into=total)
        more = df.signal(on=total, name="more")(lambda total: not gate.exists())

        def program() -> Any:
            while more():
                work()
                add()
            return X

        running = threading.Thread(target=df.run, args=(program,))
        running.start()
        try:
            wait_until(lambda: moves_of(df) > 0)
        finally:
            gate.touch()
            running.join()


def test_nothing_is_left_of_a_program(small: LocalCluster, plane: str, tmp_path: Path) -> None:
    with local(small, plane=plane) as df:
        df.run(counting(df, 3)[0])  # The cluster keeps pipes to what it has started for the app.
    files = len(list(Path("/proc/self/fd").iterdir()))
    with Client(small) as client:
        with local(client, plane=plane, snapshot_dir=tmp_path) as df:
            df.run(counting(df, 3)[0])
            directory, controller = Path(driver_of(df)._directory), driver_of(df)._controller
            assert directory.exists() and controller.poll() is None
        assert client.unfinished() == []
    wait_until(lambda: workers_of(small) == [])
    assert not directory.exists()
    assert list(tmp_path.iterdir()) == [] and controller.poll() is not None
    assert len(list(Path("/proc/self/fd").iterdir())) == files
