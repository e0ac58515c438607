"""Planes `templates` and `central` on real node monitors, where they differ from `local`."""

from __future__ import annotations

import io
import runpy
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import InvalidProgram
from sparrow_py import Client, LocalCluster
from tests.frontends.dataflow.test_live import (
    Gated,
    _add_one,
    answer_of,
    assert_equal,
    counting,
    local,
    workers_of,
)
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
def test_an_example_agrees_with_numpy(
    small: LocalCluster, plane: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARROW_SCHEDULER", small.addresses[0])
    options = ["--vertices", "500", "--edges", "4000", "--side", "3"]
    monkeypatch.setattr(sys, "argv", ["pagerank", "--check", "--plane", plane, *options])
    runpy.run_path(str(ROOT / "examples" / "dataflow" / "pagerank.py"), run_name="__main__")
    assert "largest difference from numpy" in capsys.readouterr().out


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


@pytest.mark.rest
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
