"""What a flow plane needs at its start, and what is said if it is not there."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from click.testing import CliRunner

from scheduler.__main__ import main
from scheduler.flow.start import flow_plane
from scheduler.options import SchedulerOptions
from scheduler.planes import plane_of
from sparrow_py.errors import ClusterError, InvalidOption
from tests.support.flow_rig import FlowRig


def test_policy_flow_is_a_plane_of_its_own() -> None:
    assert FlowRig().plane.name == "flow"
    assert callable(plane_of(SchedulerOptions(policy="flow")))


@pytest.mark.parametrize("policy", ["fastest", "json:JSONDecoder", "no_such_module:Policy", "json:nothing", ""])
def test_a_policy_that_is_none(policy: str) -> None:
    with pytest.raises(InvalidOption, match=r"^flow_policy: '"):
        flow_plane(SchedulerOptions(policy="flow", flow_policy=policy))


@pytest.mark.parametrize("package", ["numpy", "numba"])
def test_a_missing_package_is_named_with_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find_spec(name))
    with pytest.raises(ClusterError, match=rf"needs the package {package}; .*\[flow\]"):
        flow_plane(SchedulerOptions(policy="flow"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flow_policy", "nonsense"),
        ("flow_preemption", True),
        ("flow_tasks_max", 8),
        ("flow_age_s", 2.0),
        ("flow_gang_wait_s", 0.0),
        ("nodes_expected", 3),
        ("standby_of", "any"),
        ("takeover_s", 0.0),
    ],
)
def test_what_policy_flow_alone_heeds_is_refused_without_it(name: str, value: Any) -> None:
    flag = f"--{name.replace('_', '-')}"
    stated = [flag] if value is True else [flag, str(value)]
    refused = CliRunner().invoke(main, stated)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert f"{name}: {value!r}" in refused.stderr and "needs --policy flow" in refused.stderr
    default = getattr(SchedulerOptions(), name)
    assert getattr(SchedulerOptions(**{name: default}), name) == default
    assert getattr(SchedulerOptions(policy="flow", **{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"), [("policy", "fast"), ("flow_tasks_max", 0), ("flow_age_s", 0.0), ("flow_age_s", 1e9)]
)
def test_options_out_of_bounds(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=name):
        SchedulerOptions(**{name: value})
