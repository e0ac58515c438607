"""The documents say what the code says: options, metrics, limits, imports and links. The rest is in tests/documents."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import Metric

import node_monitor.http.metrics
import scheduler.http.metrics
import sparrow_py
from node_monitor.blobs.blob_store import Counters
from node_monitor.blobs.blobs import BlobTable
from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.options import DaemonOptions
from sparrow_py.timing.histogram import APPS_MAX, OTHER
from tests.support.documents import DOCUMENTS, ROOT, blocks, rows, section
from tests.support.flow_rig import FlowRig
from tests.support.node_core import NodeCore
from tests.support.scheduler_rig import SchedulerRig

README_LINES_MAX = 200
OF_OTHERS = {"celery", "distributed", "joblib", "mpi4py", "opentelemetry", "sklearn"}
"""Packages that need not be installed; tests that have them run their blocks."""
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def written(default: object) -> str:
    """A default as the table has it."""
    if default in (None, ()):
        return "none"
    if default == "":
        return "empty"
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)


def options_of(daemon: type) -> dict[str, str]:
    """Each option and its default, as the table has it."""
    return {field.name: written(field.default) for field in dataclasses.fields(daemon) if field.init}


SCHEDULER, NODE_MONITOR = options_of(SchedulerOptions), options_of(NodeMonitorOptions)
COMMON = {name: default for name, default in options_of(DaemonOptions).items() if SCHEDULER[name] == default}
"""Those of both daemons whose default is the same."""


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("Both daemons", COMMON),
        ("Scheduler", {name: default for name, default in SCHEDULER.items() if name not in COMMON}),
        ("Node monitor", {name: default for name, default in NODE_MONITOR.items() if name not in COMMON}),
    ],
)
def test_every_option_is_documented_with_its_default(heading: str, options: dict[str, str]) -> None:
    assert rows(section("docs/options.md", heading)) == options


def names(metrics: Iterable[Metric]) -> set[str]:
    """As they are scraped."""
    return {sample.name for metric in metrics for sample in metric.samples}


@pytest.mark.parametrize("heading", ["Scheduler", "Node monitor"])
def test_every_metric_is_documented(heading: str) -> None:
    if heading == "Scheduler":
        metrics = scheduler.http.metrics.collect(SchedulerRig().core, 0, SchedulerOptions())
    else:
        store: Any = SimpleNamespace(table=BlobTable(0, 0.0, 0.0), counters=Counters())
        metrics = node_monitor.http.metrics.collect([], store, NodeMonitorOptions())
    assert set(re.findall(r"^\| `(\w+)` \|", section("docs/metrics.md", heading), re.M)) == names(metrics)


def test_what_counts_as_a_death_or_a_suspicion_is_said_alike_in_help_texts_and_document() -> None:
    store: Any = SimpleNamespace(table=BlobTable(0, 0.0, 0.0), counters=Counters())
    text = section("docs/metrics.md", "Node monitor")
    helps = {
        metric.name: metric.documentation
        for metric in node_monitor.http.metrics.collect([], store, NodeMonitorOptions())
    }
    for name in ("executor_deaths", "suspicions"):
        assert f"| `sparrow_node_monitor_{name}_total` | {helps[f'sparrow_node_monitor_{name}']} |" in text


def test_the_histograms_by_app_are_documented() -> None:
    core, node = SchedulerRig().core, NodeCore()
    core.counters.task_times.pending.append(("app", 0.5, 0.5, "j", 1.0))
    node.core.counters.get_task_s.pending.append(("app", 0.5, "j", 1.0))
    store: Any = SimpleNamespace(table=BlobTable(0, 0.0, 0.0), counters=Counters())
    found = names(scheduler.http.metrics.collect(core, 0, SchedulerOptions()))
    found |= names(node_monitor.http.metrics.collect([node.core], store, NodeMonitorOptions()))
    text = section("docs/metrics.md", "Times by application")
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    assert listed == {name for name in found if "_task_" in name and name.endswith(("_bucket", "_count", "_sum"))}
    assert f"the first {APPS_MAX} that are seen" in text and f"`{OTHER}`" in text


def test_every_metric_of_a_flow_plane_is_documented() -> None:
    rig = FlowRig()
    rig.plane.rounds.solved("relaxation", 1, 1)
    of_flow = names(scheduler.http.metrics.collect(rig.core, 0, SchedulerOptions()))
    of_all = names(scheduler.http.metrics.collect(SchedulerRig().core, 0, SchedulerOptions()))
    text = section("docs/metrics.md", "Scheduler with policy flow")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.M)) == of_flow - of_all


def test_limits_have_the_values_that_the_table_says() -> None:
    limits = {name: value for name, value in rows(section("ARCHITECTURE.md", "Limits")).items() if "." in name}
    assert len(limits) > 30
    for name, text in limits.items():
        module, _, attribute = name.rpartition(".")
        assert number(text) == getattr(importlib.import_module(module), attribute), name


def number(text: str) -> float:
    """10,000, 2^31, 64 MiB or 0.002."""
    amount, _, unit = text.replace(",", "").partition(" ")
    base, _, power = amount.partition("^")
    return float(base) ** int(power or 1) * (UNITS[unit] if unit else 1)


def test_python_blocks_compile_and_import_what_there_is() -> None:
    named = [(path.name, block) for path in DOCUMENTS for block in blocks(path, "python")]
    assert len(named) > 5
    for name, block in named:
        tree = ast.parse(block, name)
        compile(tree, name, "exec")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module
                if node.module.partition(".")[0] in OF_OTHERS:
                    continue
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{name}: {node.module} has no {missing}"


def test_readme_names_what_the_library_exports() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in ("Client", "AsyncClient", "SparrowExecutor", "LocalCluster", "CallOptions", "JobSpec"):
        assert name in sparrow_py.__all__
        assert name in readme


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = (path.parent / file) if file else path
        assert linked.is_file(), f"{path.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text("utf-8"), re.M)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{path.name}: {target}"
