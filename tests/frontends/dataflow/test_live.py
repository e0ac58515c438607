"""Planes with workers on real node monitors: answers are bitwise those of `inline`, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np
import psutil
import pytest

from frontends.dataflow import Dataflow, InvalidProgram, ProgramDiverged, StageHandle, slots
from frontends.dataflow.cluster_runner import ClusterRunner
from frontends.dataflow.control_messages import CONTROLLER
from frontends.dataflow.driver import Driver
from frontends.dataflow.errors import RunLost
from frontends.dataflow.slots import UNREACHABLE_S
from sparrow_py import Client, LocalCluster
from sparrow_py.errors import NoScheduler, RemoteTraceback
from sparrow_py.wire import dialling
from tests.support.daemons import Daemon, node_of
from tests.support.dataflow_programs import logistic_data, pagerank
from tests.support.dataflow_random import random_program
from tests.support.documents import ROOT, blocks
from tests.support.interrupts import interrupted
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.processes


def local(cluster: Any, **options: Any) -> Dataflow:
    options = {"workers": 2, "partitions": 4, "plane": "local", "progress": False, **options}
    return Dataflow(cluster, **options)


def counting(df: Dataflow, rounds: int, pause_s: float = 0.0) -> tuple[Callable[[], Any], Any]:
    """A loop over arrays that are exchanged, reduced and read by all; the program, and its dataset."""
    X = df.partition(np.arange(8000.0), name="X")
    total, shared = df.single(np.zeros(1), name="total"), df.replicate(np.ones(1), name="shared")
    sums = df.empty(1, like=X, name="sums")
    count = df.single(np.zeros(1), name="count")
    X_partitions = X.partitions

    @df.stage(reads=[shared], writes=[X, sums])
    def step(shared: Array, x: Array, sums: Array) -> None:
        if pause_s:
            time.sleep(pause_s)
        x *= 0.5
        x += shared[0]
        sums[0] = x.sum()

    add = df.reduce(sums, into=total)

    @df.stage(reads=[total], writes=[shared])
    def share(total: Array, shared: Array) -> None:
        shared[0] = np.sqrt(total[0])

    @df.scatter(reads=[X], to=X)
    def send(x: Array) -> Any:
        for index in range(X_partitions):
            yield index, x[index::X_partitions].copy()

    @df.gather(send, writes=[X])
    def take(chunks: list[Array], x: Array) -> None:
        x[:] = np.concatenate(chunks)

    @df.stage(writes=[count])
    def tick(count: Array) -> None:
        count += 1

    @df.signal(on=count)
    def more(count: Array, *, below: int) -> Any:
        return count[0] < below

    def program() -> Any:
        while more(below=rounds):
            step()
            add()
            share()
            send()
            take()
            tick()
        return X, total, shared

    return program, count


def answer_of(rounds: int) -> Any:
    with Dataflow(partitions=4, progress=False) as df:
        return df.run(counting(df, rounds)[0])


def assert_equal(one: Any, other: Any) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert np.array_equal(mine, theirs), (mine, theirs)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("nodes", ["one node", "two nodes"])
def test_a_program_answers_as_inline(nodes: str, transport: str, small: LocalCluster, cluster: LocalCluster) -> None:
    where, workers = (small, 2) if nodes == "one node" else (cluster, 4)
    with local(where, workers=workers, transport=transport) as df:
        assert_equal(df.run(counting(df, 10)[0]), answer_of(10))


def test_a_program_without_signals_answers_as_inline(cluster: LocalCluster) -> None:
    assert np.array_equal(pagerank(cluster, "local"), pagerank(None, "inline"))


def test_the_documents_program_answers_as_inline(small: LocalCluster) -> None:
    from scipy.special import expit  # Many modules, which no process needs that runs other tests.

    program, *_ = blocks(ROOT / "docs" / "dataflow.md", "python")
    features, labels = logistic_data()
    weights = []
    for options in ("partitions=16", "cluster, workers=2, partitions=16, plane='local', progress=False"):
        names: dict[str, Any] = {
            "np": np, "expit": expit, "features": features, "labels": labels, "columns": 5, "cluster": small,
        }  # fmt: skip
        exec(compile(program.replace("partitions=16", options), "docs/dataflow.md", "exec"), names)
        weights.append(names["weights"])
    assert np.array_equal(*weights)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic_regression", ["--rows", "2000", "--partitions", "5"]),
        ("pagerank", ["--vertices", "500", "--edges", "4000", "--side", "3"]),
    ],
)
def test_examples_agree_with_numpy(
    name: str,
    options: list[str],
    small: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARROW_SCHEDULER", small.addresses[0])
    monkeypatch.setattr(sys, "argv", [name, "--check", "--plane", "local", *options])
    runpy.run_path(str(ROOT / "examples" / "dataflow" / f"{name}.py"), run_name="__main__")
    assert "largest difference from numpy" in capsys.readouterr().out


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


def _add_one(x: Array) -> None:
    x += 1


def _double(x: Array) -> None:
    x *= 2


def _copy(x: Array, y: Array) -> None:
    y[:] = x


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


def _fail_at_five(x: Array) -> None:
    if 5 in x:
        x[0] = 1 // 0


def test_what_stages_and_the_program_print_reaches_the_program_once(
    small: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with local(small) as df:
        X = df.partition(np.arange(8.0))
        say = df.stage(reads=[X], name="say")(lambda x: print("partition", int(x[0])))

        def program() -> None:
            print("begins")
            say()
            df.barrier()
            print("ends")

        df.run(program)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["begins", "ends", *(f"partition {index}" for index in (0, 2, 4, 6))]
    assert lines.index("begins") < lines.index("ends")


def test_what_the_program_prints_is_printed_once_although_a_worker_is_killed(
    small: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what it prints while no other worker has come as far, and in a run before, which is run again."""
    with local(small) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)

        def first() -> None:
            print("first")
            change()

        df.run(first)
        gated = Gated(df, tmp_path / "gate", pause_s=0.001)
        loop = gated.program

        def program() -> Any:
            print("begins")
            answer = loop()
            print("ends")
            return answer

        gated.program = program
        with gated:
            wait_until(gated.runs)
            Random(1).choice(workers_of(small)).kill()
            wait_until(lambda: gated.runs(1))
    gated.check()
    assert capsys.readouterr().out.splitlines() == ["first", "begins", "ends"]


def test_a_program_that_does_not_depend_on_signals_alone_is_refused(small: LocalCluster) -> None:
    with local(small) as df:
        X = df.partition(np.arange(8.0))
        one = df.stage(writes=[X], name="one")(_add_one)
        other = df.stage(writes=[X], name="other")(_double)

        def program() -> None:
            (one if os.getpid() % 2 else other)()
            df.barrier()

        for _ in range(10):  # Workers may have process ids that are both even.
            try:
                df.run(program)
            except ProgramDiverged as error:
                assert {error.here, error.there} <= {"one", "other", "(barrier)"}
                return
            df._cluster_runner._stop()  # type: ignore[union-attr]
        raise AssertionError("it was not refused")


def test_captured_arrays_of_the_program_are_known_by_their_shape_alone(small: LocalCluster) -> None:
    rows = np.arange(8000.0)
    with local(small) as df:
        X = df.partition(rows)
        scale = df.stage(writes=[X], name="scale")(_scale)

        def program() -> Any:
            scale(by=1 / len(rows))
            return X

        assert np.array_equal(df.run(program), rows * (1 / 8000))
        with pytest.raises(InvalidProgram, match=r"uses contents of an array of shape \(8000,\)"):
            df.run(lambda: scale(by=rows[0]))


def _scale(x: Array, *, by: float) -> None:
    x *= by


def test_a_function_that_cannot_be_pickled_is_an_error_that_names_its_stage(small: LocalCluster) -> None:
    lock = threading.Lock()
    with local(small) as df:
        stuck = df.stage(writes=[df.partition(np.arange(8.0))], name="stuck")(lambda x: lock.acquire())
        with pytest.raises(InvalidProgram, match="the function of stuck cannot be sent to workers"):
            df.run(stuck)


def test_more_workers_than_slots_start_smaller_and_say_so(
    small: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with local(small, workers=5, progress=True) as df:
        assert_equal(df.run(counting(df, 3)[0]), answer_of(3))
    assert "5 workers are wanted, and the cluster has 2 slots for them: it starts smaller" in capsys.readouterr().err


def test_fewer_slots_than_workers_that_are_needed_are_an_error(small: LocalCluster) -> None:
    with local(small, workers=5, min_workers=3, start_timeout_s=0.01) as df:
        change = df.stage(writes=[df.partition(np.arange(8.0))], name="change")(_add_one)
        with pytest.raises(InvalidProgram, match="3 workers are needed, and nodes that run app dataflow have 2 slots"):
            df.run(change)


def test_a_dataflow_that_is_closed_ends_the_run_of_another_thread(small: LocalCluster, tmp_path: Path) -> None:
    with local(small) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
        wait_until(gated.runs)
        df.close()
    assert isinstance(gated.error, RunLost) and "was closed" in str(gated.error)


def test_a_driver_that_workers_do_not_reach_is_an_error_that_names_the_address(small: LocalCluster) -> None:
    with local(small, advertise="127.0.0.77", transport="tcp") as df:
        runner = df._cluster_runner
        assert runner is not None
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)
        runner._driver = driver = runner._started()
        driver._where = (*driver._where[:2], "127.0.0.78", driver._where[3])
        with pytest.raises(RunLost, match=r"did not start: .*no link to the driver at 127.0.0.78:\d+"):
            df.run(change)


# ---- workers and daemons that end -----------------------------------------------------------------


class Gated:
    """A program that goes on until a file is there, in a thread; it counts its rounds."""

    def __init__(self, df: Dataflow, gate: Path, pause_s: float = 0.0) -> None:
        self.df, self.gate = df, gate
        loop, count = counting(df, 0, pause_s)
        path = str(gate)
        # Whatever it says is recorded: no other worker looks.
        df.signal(on=count, name="more")(lambda count, *, below: not os.path.exists(path))  # noqa: PTH110
        more = StageHandle(df, next(stage for stage in df._definition.stages if stage.name == "more"))
        self.program = rebound(loop, more=more)
        self.answer: Any = None
        self.error: BaseException | None = None
        self._count = count
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        program, count = self.program, self._count
        try:
            self.answer = self.df.run(lambda: (program(), count))
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Gated:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.touch()
        self._thread.join()

    def is_running(self) -> bool:
        """Whether the run has not ended by itself."""
        return self._thread.is_alive()

    def runs(self, rollbacks: int = 0) -> bool:
        """Whether it has come some blocks far, after so many failures."""
        assert self.error is None and self._thread.is_alive(), self.error
        progress = runner_of(self.df).progress
        return progress is not None and (
            progress.rollbacks >= rollbacks and progress.block > 2 and progress.state == "running"
        )

    def check(self) -> None:
        """Its answer is that of `inline` after as many rounds."""
        assert self.error is None, self.error
        answer, (rounds,) = self.answer
        assert_equal(answer, answer_of(int(rounds)))


def rebound(function: Any, **values: Any) -> Any:
    """The function, with other values of what it captured."""
    cells = [
        CellType(values[name]) if name in values else cell
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True)
    ]
    return FunctionType(function.__code__, function.__globals__, function.__name__, None, tuple(cells))


def runner_of(df: Dataflow) -> ClusterRunner:
    assert df._cluster_runner is not None
    return df._cluster_runner


def driver_of(df: Dataflow) -> Driver:
    driver = runner_of(df)._driver
    assert driver is not None
    return driver


def workers_of(cluster: LocalCluster) -> list[psutil.Process]:
    """The processes of a cluster that are workers of a program: these have a thread that greets peers."""
    return [
        process
        for daemon in cluster.node_processes
        for process in psutil.Process(daemon.pid).children(recursive=True)
        if is_worker(process)
    ]


def seen_of(df: Dataflow, cluster: LocalCluster) -> str:
    """What there is of a program and its cluster, for whoever waits in vain for a worker."""
    processes = [
        f"{child.pid} of {child.ppid()}, {child.num_threads()} threads: {' '.join(child.cmdline()).strip()[-100:]}"
        for daemon in cluster.node_processes
        for child in psutil.Process(daemon.pid).children(recursive=True)
    ]
    jobs = [(number, [*job.futures]) for number, job in driver_of(df)._jobs.items()]
    return f"{runner_of(df).progress}; workers' jobs: {jobs}; processes: {processes}"


def is_worker(process: psutil.Process) -> bool:
    try:
        return "frontends.dataflow.worker" in " ".join(process.cmdline()) and process.num_threads() > 2
    except psutil.NoSuchProcess:  # It has ended meanwhile.
        return False


@pytest.mark.parametrize("snapshots", rest_after(1, True, False))
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


@pytest.mark.parametrize(
    ("plane", "seed"),
    rest_after(1, *([plane, seed] for plane in ("local", "templates", "central") for seed in range(2))),
)
def test_a_worker_killed_at_a_random_moment_changes_no_answer(
    plane: str, seed: int, request: pytest.FixtureRequest
) -> None:
    """From the start of the workers on, snapshots and the last round included; every other time over TCP."""
    chance = Random(seed)
    name, transport = ("two_nodes", "tcp") if seed % 2 else ("small", "auto")
    cluster = request.getfixturevalue(name)
    with local(cluster, plane=plane, transport=transport) as df:
        program, _ = counting(df, 100, pause_s=0.001)
        answers: list[Any] = []
        running = threading.Thread(target=lambda: answers.append(df.run(program)))
        running.start()
        for _ in range(2):
            running.join(chance.random() * 0.5)
            if workers := workers_of(cluster):
                chance.choice(workers).kill()
        running.join()
    assert_equal(answers[0], answer_of(100))


def test_a_killed_controller_is_replaced_and_changes_no_answer(where: dict[str, Any], tmp_path: Path) -> None:
    with local(**where) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
        wait_until(gated.runs)
        first = driver_of(df)._controller
        first.kill()
        wait_until(lambda: driver_of(df)._controller is not first)
        runner_of(df).progress = None
        wait_until(gated.runs)
        # One that has been replaced meanwhile may be there for a while.
        wait_until(
            lambda: len(workers_of(where["cluster"])) >= 2, lambda: f"two workers: {seen_of(df, where['cluster'])}"
        )
    gated.check()


def test_a_run_that_needs_a_worker_while_no_scheduler_is_reached_ends_with_all_that_were_tried(
    small: LocalCluster, plane: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(small) as client, local(client, plane=plane) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)
        df.run(change)
        with monkeypatch.context() as away, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
            wait_until(gated.runs)
            away.setattr(Client, "cut_off_s", lambda _: UNREACHABLE_S)
            away.setattr(Client, "why_cut_off", lambda _: "scheduler 10.0.0.1:20503 cannot be reached")
            wait_until(lambda: driver_of(df)._is_cut_off)
            runner_of(df).progress = None
            wait_until(gated.runs)  # What has its workers goes on.

            def ends_without_workers() -> bool:
                """Also without those that come later: the cluster is there, after all, and starts others."""
                for worker in workers_of(small):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.kill()
                return not gated.is_running()

            wait_until(ends_without_workers)
        assert isinstance(gated.error, RunLost)
        # Whichever is known first: that a worker's link has ended, or (the cluster is there, after all) its task.
        assert "no scheduler has been reached for 10 s: scheduler 10.0.0.1:20503 cannot be" in str(gated.error)
        assert np.array_equal(df.run(lambda: X), np.arange(8.0) + 1)


@pytest.mark.rest
def test_a_scheduler_that_comes_back_in_time_starts_the_workers_that_a_run_needs(plane: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with contextlib.ExitStack() as daemons:
        only = daemons.enter_context(Daemon("scheduler", log=log))
        node = daemons.enter_context(node_of(only.address, log, slots=1))
        options = {"workers": 1, "plane": plane}
        with local(only.address, **options) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
            wait_until(gated.runs)
            only.kill()
            (worker,) = filter(is_worker, psutil.Process(node.process.pid).children(recursive=True))
            worker.kill()
            wait_until(lambda: runner_of(df).progress.state == "waiting for workers")  # type: ignore[union-attr]
            daemons.enter_context(Daemon("scheduler", log=log, port=only.port))
            wait_until(lambda: gated.runs(1))
        gated.check()


def test_a_run_whose_schedulers_take_its_token_no_more_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were started again with another one, say. Nobody waits until a scheduler has been away for long."""
    monkeypatch.setattr(slots, "UNREACHABLE_S", 3600.0)
    monkeypatch.setattr(dialling, "REDIAL_MAX_S", 0.1)
    with contextlib.ExitStack() as daemons:
        only = daemons.enter_context(Daemon("scheduler", log=tmp_path / "log", SPARROW_TOKEN="a" * 32))
        with Client(only.address, token="a" * 32) as client, local(client, workers=1) as df:
            X = df.partition(np.arange(8.0))
            change = df.stage(writes=[X], name="change")(_add_one)
            only.kill()
            daemons.enter_context(Daemon("scheduler", log=tmp_path / "log", port=only.port, SPARROW_TOKEN="b" * 32))
            wait_until(client.is_denied)
            with pytest.raises(NoScheduler, match=r"takes this client: .* the token is missing or wrong"):
                df.run(change)


def test_a_node_that_drains_loses_nothing(plane: str, tmp_path: Path) -> None:
    with LocalCluster(node_monitors=2, slots=1, log_dir=tmp_path) as cluster:
        options = {"plane": plane, "lease_s": 0.2, "transport": "tcp"}
        with local(cluster, **options) as df, Gated(df, tmp_path / "gate", pause_s=0.001) as gated:
            wait_until(gated.runs)
            psutil.Process(cluster.node_processes[0].pid).terminate()
            wait_until(lambda: moves_of(df) > 0)
            wait_until(lambda: runner_of(df).progress.workers == 1)  # type: ignore[union-attr]
            assert runner_of(df).progress.rollbacks == 0  # type: ignore[union-attr]
        gated.check()


def moves_of(df: Dataflow) -> int:
    progress = runner_of(df).progress
    return 0 if progress is None else progress.moves


def test_workers_yield_to_another_users_backlog_and_come_back(place: dict[str, Any], tmp_path: Path) -> None:
    cluster = place["cluster"]
    with Client(cluster, user="ada") as ada, Client(cluster, user="bob") as bob:
        with (
            local(**{**place, "cluster": ada}, lease_s=0.1) as df,
            Gated(df, tmp_path / "gate", pause_s=0.001) as gated,
        ):
            wait_until(gated.runs)
            for _ in range(2):
                bob.gather([bob.submit(time.sleep, 0.05) for _ in range(8)])
            wait_until(lambda: gated.runs() and runner_of(df).progress.workers == 2)  # type: ignore[union-attr]
        gated.check()


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


def test_ctrl_c_ends_everything_and_the_dataflow_can_be_used_again(place: dict[str, Any], tmp_path: Path) -> None:
    with local(**place) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_add_one)
        df.run(change)
        endless = df.stage(writes=[X], name="endless")(_sleep)
        begun = str(tmp_path / "begun")
        begin = df.stage(writes=[X], name="begin")(lambda x: Path(begun).touch())
        with interrupted((tmp_path / "begun").exists):
            df.run(lambda: (begin(), endless()))
        wait_until(lambda: workers_of(place["cluster"]) == [])
        assert np.array_equal(df.run(lambda: X), np.arange(8.0) + 1)


def test_a_link_that_is_lost_while_both_its_ends_live_takes_no_snapshots_with_it(
    where: dict[str, Any], tmp_path: Path
) -> None:
    """As when Ctrl-C ends a call that sends, in the midst of a frame."""
    with local(**where, snapshot_dir=tmp_path, snapshot_every_s=0.001) as df:
        program, _ = counting(df, 10, pause_s=0.01)
        rounds = 0
        while runner_of(df)._needed_from == 0:
            rounds += 10
            df.run(rebound(program, rounds=rounds))
        first, needed = driver_of(df)._controller, runner_of(df)._needed_from
        driver_of(df)._peers.links.end(CONTROLLER, "on purpose")
        first.wait(TIMEOUT_S)
        assert runner_of(df)._snapshots.reach(needed)
        assert_equal(df.run(rebound(program, rounds=rounds + 5)), answer_of(rounds + 5))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rest
def test_after_ctrl_c_a_dataflow_goes_on_from_its_last_snapshot_and_from_none_of_the_run(
    place: dict[str, Any], tmp_path: Path
) -> None:
    with local(**place, snapshot_dir=tmp_path, snapshot_every_s=0.001) as df:
        program, _ = counting(df, 10, pause_s=0.01)
        rounds = 0
        while runner_of(df)._needed_from == 0:  # Until runs before are forgotten, as there is a snapshot.
            rounds += 10
            df.run(rebound(program, rounds=rounds))
        stored = f"*/snapshot-{runner_of(df)._next_run}-*/whole"
        with interrupted(lambda: [*tmp_path.glob(stored)]):
            df.run(rebound(program, rounds=1 << 40))
        assert_equal(df.run(rebound(program, rounds=rounds + 5)), answer_of(rounds + 5))
    assert list(tmp_path.iterdir()) == []


def _sleep(x: Array) -> None:
    time.sleep(100)


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


def test_objects_of_classes_that_workers_do_not_have_are_an_error_that_says_so(
    small: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no lost workers: it would be so again after each roll-back."""
    module = ModuleType("beside_the_program")
    exec("class Mine:\n    pass\n", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with local(small) as df:
        held = df.objects([module.Mine() for _ in range(4)])
        with pytest.raises(RunLost, match=r"cannot read what the driver sent: .*No module named 'beside_the_program'"):
            df.run(lambda: held)
