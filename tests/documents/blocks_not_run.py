"""Blocks of the documents that no test runs as they stand, by words that are in them, and why; and those that a test
of their own runs. All others run in `test_python_blocks.py` and `test_shell_blocks.py`."""

from __future__ import annotations

Listed = dict[str, dict[str, str]]
"""Of a document: words of blocks, and a reason or the test."""

FOR_LONG = "minutes to hours of measuring; the command has tests in "
UNTIL_ENDED = "daemons that run until they are ended, on fixed ports; see "
MACHINES = "needs the machines or accounts that it names; see "
INSTALLS = "installs packages"

PYTHON_ELSEWHERE: Listed = {
    "docs/dataflow.md": {
        "gradient": "tests/frontends/dataflow/test_examples.py",
        "w -= 1 / len(features) * g": "tests/frontends/dataflow/test_examples.py",
        "compiled=True": "tests/frontends/dataflow/test_examples.py",
        "rod": "tests/frontends/dataflow/test_side_by_side.py",
    },
    "docs/flow.md": {"RackByRack": "tests/scheduler/flow/policies/test_document.py"},
    "docs/simulator-example.md": {"": "tests/simulator/test_example.py"},
}
"""Blocks that belong together, or have output below them."""

PYTHON_NOT_RUN: Listed = {
    "docs/altruistic.md": {
        "policies=": "compiles kernels for ten seconds; tests/system/test_altruistic_plane.py runs such jobs",
    },
    "docs/deploy.md": {"SSHCluster": MACHINES + "tests/system/test_remote_clusters.py"},
    "docs/sql.md": {"/data/tpch": "needs TPC-H tables; tests/frontends/sql/test_answers.py makes some"},
    "docs/workflow.md": {"from_hive": "starts an engine for seconds; tests/frontends/workflow/test_live.py runs such"},
}

SHELL_NOT_RUN: Listed = {
    "CONTRIBUTING.md": {"seq 20": "runs tests"},
    "README.md": {
        "--policy flow": UNTIL_ENDED + "tests/system/test_two_planes.py",
    },
    "SECURITY.md": {"pip install": INSTALLS},
    "docs/altruistic-figures.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_altruistic.py"},
    "docs/altruistic-workloads.md": {
        "generate tpcds": "large jobs; tests/loadgen/dags/test_dags_command.py makes small ones",
        "record": FOR_LONG + "tests/loadgen/dags/test_tpch_dags.py",
        "alibaba": "needs Alibaba's trace; see tests/loadgen/dags/test_alibaba.py",
    },
    "docs/altruistic.md": {"simulator dags": "a minute; tests/simulator/dags/test_play.py plays small ones"},
    "docs/batch-sampling.md": {"figure 3 6": FOR_LONG + "tests/simulator/test_figures.py"},
    "docs/dashboard.md": {"sparrow top": "shows figures until a key ends it; see tests/frontends/test_top.py"},
    "docs/dataflow-figures.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_dataflow_figures.py"},
    "docs/dataflow.md": {"examples/dataflow": "as small ones in tests/frontends/dataflow/test_examples.py"},
    "docs/deploy.md": {
        "install.sh": MACHINES + "tests/deploy/test_systemd.py",
        "podman": MACHINES + "tests/deploy/test_container.py",
        "kubectl": MACHINES + "tests/deploy/test_kubernetes.py",
        "--ssh": MACHINES + "tests/system/test_remote_clusters.py",
    },
    "docs/executor-protocol.md": {
        "sparrow-node-monitor": UNTIL_ENDED + "tests/node_monitor/test_conformance.py",
        "conformance": "tests/node_monitor/test_conformance.py holds the same example against the protocol",
    },
    "docs/faults-compared.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_faults_peers.py"},
    "docs/flow-figures.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_flow_figures.py"},
    "docs/flow.md": {
        "sparrow-scheduler": UNTIL_ENDED + "tests/system/test_flow_plane.py",
        "cluster.min": "with the file that the document shows in tests/scheduler/flow/test_command.py",
    },
    "docs/from-gnu-parallel.md": {
        "seq 1000": "a thousand commands; each option is in tests/sparrow_py/test_commands.py",
        "node1": MACHINES + "tests/system/test_remote_clusters.py",
    },
    "docs/loadgen.md": {
        "loadgen run": FOR_LONG + "tests/loadgen/test_replay.py",
        "sql.record": FOR_LONG + "tests/frontends/sql/test_record.py",
        "simulator queries": FOR_LONG + "tests/simulator/test_stages.py",
        "trace tpch": "long traces; tests/loadgen/test_queries.py makes short ones",
        "trace google-like": "needs the traces that it names; see tests/loadgen/test_public_traces.py",
        "loadgen.report": "needs what a run wrote; see tests/loadgen/test_report.py",
        "shortest_task": FOR_LONG + "tests/benchmarks/test_shortest_task.py",
    },
    "docs/numpy-sklearn-dask-jupyter.md": {
        "pip install": INSTALLS,
        "benchmarks.habits": FOR_LONG + "tests/benchmarks/test_habits_turns.py",
        "benchmarks.graphs": FOR_LONG + "tests/benchmarks/test_graphs.py",
    },
    "docs/operations.md": {
        "pip install": INSTALLS,
        "--standby-of": UNTIL_ENDED + "tests/system/test_daemons.py",
        "10.0.0.1": MACHINES + "tests/security/test_tokens.py",
        "naps": "at the pace of hands: lists what has begun by then; tests/sparrow_py/test_commands.py cancels jobs",
        "doctor": MACHINES + "tests/frontends/test_doctor.py",
    },
    "docs/paper.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_paper.py"},
    "docs/peers.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_peers.py"},
    "docs/simulator-example.md": {
        "make_mixed_trace": "writes into the repository; see tests/simulator/test_example.py"
    },
    "docs/simulator.md": {
        "simulator run": "ten to twenty seconds; see tests/simulator/test_run_command.py",
        "figure all": FOR_LONG + "tests/simulator/test_figures.py",
        "queries": FOR_LONG + "tests/simulator/test_stages.py",
        "soak": FOR_LONG + "tests/simulator/test_soak.py",
        "benchmarks.": FOR_LONG + "tests/benchmarks/test_additions.py",
    },
    "docs/sql.md": {
        "pip install": INSTALLS,
        "/data/": "needs TPC-H tables; tests/frontends/sql/test_cli.py makes some",
    },
    "docs/tracing.md": {"pip install": INSTALLS},
    "docs/tour.md": {"simulator run": "seconds of computing; tests/simulator/test_run_command.py runs smaller ones"},
    "docs/tutorial.md": {
        "pip install": INSTALLS,
        "sparrow cluster": UNTIL_ENDED + "tests/sparrow_py/test_commands.py",
    },
    "docs/workflow-engines.md": {"pip install": INSTALLS},
    "docs/workflow-figures.md": {"benchmarks.": FOR_LONG + "tests/benchmarks/test_workflow_figures.py"},
    "docs/workflow.md": {
        "dearest.hql": "starts engines for some seconds; tests/frontends/workflow/test_live.py runs such",
        "/shared/": MACHINES + "tests/frontends/workflow/test_live.py",
    },
}


def why_not(listed: Listed, path: str, block: str) -> str | None:
    """What the list says of this block; None if it says nothing."""
    return next((why for words, why in listed.get(path, {}).items() if words in block), None)
