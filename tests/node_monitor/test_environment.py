"""What executors get of the node monitor's environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from node_monitor.executors.environment import (
    THREADS,
    THREADS_AS_OPENMP,
    THREADS_OF_THEIR_OWN,
    one_thread_per_slot,
    passed_on,
)
from node_monitor.options import NodeMonitorOptions
from sparrow_py import Client

ENVIRONMENT = {
    "PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/code", "OMP_NUM_THREADS": "1", "SPARROW_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "north", "DATABASE_URL": "db", "LD_PRELOAD": "x.so",
}  # fmt: skip
USUAL = {"PATH", "LC_ALL", "PYTHONPATH", "OMP_NUM_THREADS"}


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, ENVIRONMENT.keys() - USUAL - {"SPARROW_TOKEN"}),
        ({"run_as": ("nobody",)}, set()),
        ({"token_file": "secret"}, set()),
        ({"run_as": ("nobody",), "executor_env": ("AWS_R*", "NONE")}, {"AWS_REGION"}),
        ({"executor_env": ("DATABASE_URL", "SPARROW_*")}, {"DATABASE_URL"}),
        ({"token_file": "secret", "executor_env": ("*",)}, ENVIRONMENT.keys() - USUAL - {"SPARROW_TOKEN"}),
    ],
)
def test_where_tasks_may_be_others_they_get_what_is_usual_and_what_is_named(
    options: dict[str, Any], more: set[str], tmp_path: Path
) -> None:
    if "token_file" in options:
        secret = tmp_path / "secret"
        secret.touch(0o600)
        secret.write_text("0123456789abcdef" * 4)
        options = options | {"token_file": str(secret)}
    patterns = NodeMonitorOptions(**options).executor_env_patterns
    assert passed_on(ENVIRONMENT, patterns) == {name: ENVIRONMENT[name] for name in USUAL | more}


def test_numerical_libraries_start_one_thread_in_each_executor_unless_told_otherwise() -> None:
    everything = {THREADS, *THREADS_AS_OPENMP, *THREADS_OF_THEIR_OWN}
    assert one_thread_per_slot({"PATH": "/bin"}) == {"PATH": "/bin"} | dict.fromkeys(everything, "1")
    told = one_thread_per_slot({"MKL_NUM_THREADS": "4"})
    assert told.pop("MKL_NUM_THREADS") == "4" and set(told.values()) == {"1"}


def test_libraries_that_follow_openmp_do_so_where_it_alone_is_set() -> None:
    told = {"OMP_NUM_THREADS": "4,2", "BLIS_NUM_THREADS": "3"}
    assert one_thread_per_slot(told) == told | dict.fromkeys(THREADS_OF_THEIR_OWN, "1")


def test_what_is_set_of_threads_reaches_executors_that_get_only_what_is_usual() -> None:
    told = {"VECLIB_MAXIMUM_THREADS": "2", "NUMBA_NUM_THREADS": "3", "POLARS_MAX_THREADS": "4", "THREADS": "5"}
    given = one_thread_per_slot(passed_on(told, ()))
    assert {name: given.get(name) for name in told} == told | {"THREADS": None}


def test_a_worker_finds_it_before_it_runs_anything(client: Client) -> None:
    for name in (THREADS, "NUMBA_NUM_THREADS"):
        assert client.submit(os.getenv, name).result() == os.environ.get(name, "1")
