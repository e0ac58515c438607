"""What executors get of the node monitor's environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node_monitor.environment import passed_on
from node_monitor.options import NodeMonitorOptions

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
