"""The flow plane with real processes: racks, full lanes, tokens, a partition of its leader, and a missing extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.laboratory.wires import Wires
from frontends.cli.__main__ import main as sparrow
from scheduler.flow.dimacs import read_problem
from sparrow_py import CallOptions, CallStage, Client, Job
from sparrow_py.access.credentials import Access
from sparrow_py.wire.http_get import http_get_text
from tests.support import tasks
from tests.support.daemons import Daemon, clean_environment, get_json, http, wait_for_nodes
from tests.support.guarded import ADA, CLUSTER, ask, usual_tokens
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes
READY_S = 240.0
"""Where nobody has had the solvers compiled that takes a minute, and longer on a busy machine."""
FLOW = ("--policy", "flow", "--settling-s", "0.2")
RACKS = {"n0/0": "red", "n0/1": "red", "n1/0": "blue", "n1/1": "blue"}
SLOTS, LANE = 3, 2
"""Of each node, and those of them that placed tasks may hold while a scheduler samples."""
PLACED = CallOptions(policy="flow")


class Cluster:
    """A scheduler that samples and one of policy flow, two racks of two nodes each, and tokens."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.tokens = str(usual_tokens(directory / "tokens"))
        guarded = ("--token-file", self.tokens)

        def start(module: str, name: str, *flags: str) -> Daemon:
            return stack.enter_context(Daemon(module, *guarded, *flags, log=directory / f"{name}.log"))

        self.sampling = start("scheduler", "sampling")
        self.flow = start("scheduler", "flow", *FLOW)
        both = ("--scheduler", self.flow.address, "--scheduler", self.sampling.address)
        for name, rack in (("n0", "red"), ("n1", "blue")):
            own = ("--node-id", name, "--count", "2", "--slots", str(SLOTS), "--attr", f"rack={rack}")
            start("node_monitor", name, *both, *own, "--lane-timeout-s", "0.2")
        for daemon in (self.sampling, self.flow):
            wait_until(lambda daemon=daemon: self._sees_all(daemon), "all nodes to be linked")  # type: ignore[misc]
        wait_until(lambda: http(self.flow.address, "/readyz")[0] == 200, "the scheduler to lead", READY_S)

    def _sees_all(self, daemon: Daemon) -> bool:
        return len(self.get(daemon.address, "/v1/nodes")["nodes"]) == len(RACKS)

    def get(self, address: str, path: str) -> Any:
        """What an operator is answered."""
        status, body = ask(Access(CLUSTER), address, "GET", path)
        assert status == 200
        return body

    def figure(self, name: str) -> float:
        """Of the metrics of the scheduler of policy flow."""
        text = http_get_text(self.flow.address, "/metrics", access=Access(CLUSTER))
        (line,) = [line for line in text.splitlines() if line.startswith(f"sparrow_scheduler_{name} ")]
        return float(line.split()[1])

    def run(self, *arguments: str) -> str:
        """What a command of the operator's prints."""
        result = CliRunner().invoke(sparrow, [*arguments, "--token-file", self.tokens])
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("flow"), stack)


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    addresses = [cluster.flow.address, cluster.sampling.address]
    with Client(addresses, token=CLUSTER, user="anna") as connected:
        yield connected


def started(gate: Path, count: int) -> Callable[[], bool]:
    """Whether so many of the tasks that were submitted by `held` have started."""
    return lambda: sum(tasks.started(gate, f"t{number}") for number in range(20)) >= count


def held(client: Client, gate: Path, count: int, options: CallOptions) -> Job:
    """A job of tasks that run until the gate is there."""
    return client.submit_calls(tasks.hold, [(gate, f"t{number}") for number in range(count)], options=options)


def racks_of(job: Job) -> Counter[str]:
    return Counter(RACKS[task.node] for task in job.report(TIMEOUT_S).tasks)


# ---- where tasks run -------------------------------------------------------------------------


@pytest.mark.rest
def test_no_more_tasks_than_so_many_are_in_a_rack(cluster: Cluster, client: Client, gate: Path) -> None:
    job = held(client, gate, 6, CallOptions(policy="flow", max_per_rack=2))
    wait_until(started(gate, 4), "two tasks in each rack")
    wait_until(lambda: "2 tasks wait" in cluster.run("explain", "-s", cluster.flow.address, job.job_id))
    (row,) = [row for row in cluster.run("jobs", "-s", cluster.flow.address).splitlines() if job.job_id in row]
    assert " flow " in row
    assert not started(gate, 5)()
    gate.touch()
    assert sorted(job.results(TIMEOUT_S)) == [f"t{number}" for number in range(6)]
    assert {task.attempts for task in job.report().tasks} == {1}


@pytest.mark.rest
def test_one_task_a_rack_fills_both_racks(client: Client, gate: Path) -> None:
    job = held(client, gate, 2, CallOptions(policy="flow", max_per_rack=1))
    wait_until(started(gate, 2), "a task in each rack")
    gate.touch()
    assert racks_of(job) == {"red": 1, "blue": 1}


@pytest.mark.rest
def test_tasks_go_where_another_stage_runs(client: Client, gate: Path) -> None:
    stages = [
        CallStage("first", tasks.hold, [(gate, "t0")]),
        CallStage("near", tasks.hold, [(gate, "t1")], options=CallOptions(together_with="first")),
    ]
    job = client.submit_stages(stages, options=PLACED)
    wait_until(started(gate, 2), "both at a time")
    gate.touch()
    assert len({task.node for task in job.report(TIMEOUT_S).tasks}) == 1


@pytest.mark.rest
def test_what_finds_no_room_in_the_lane_in_time_is_handed_back_and_ends_once(
    cluster: Cluster, client: Client, tmp_path: Path, gate: Path
) -> None:
    """Sampled tasks have all slots when the placed ones come: more than the lanes hold."""
    slots, starts = SLOTS * len(RACKS), tmp_path / "starts"
    sampled = held(client, gate, slots, CallOptions(policy="sparrow"))
    wait_until(started(gate, slots), "all slots to be taken")
    before = cluster.figure("handed_back_total")
    calls = [(starts, task) for task in range(3 * LANE * len(RACKS))]
    job = client.submit_calls(tasks.record_start, calls, options=CallOptions(policy="flow", max_attempts=1))
    wait_until(lambda: cluster.figure("handed_back_total") >= before + LANE * len(RACKS), "lanes to hand tasks back")
    assert not tasks.read_starts(starts)
    gate.touch()
    assert job.results(TIMEOUT_S) == list(range(len(calls)))
    assert Counter(task for task, _ in tasks.read_starts(starts)) == Counter(range(len(calls)))
    assert {task.attempts for task in job.report().tasks} == {1}
    assert len(sampled.results(TIMEOUT_S)) == slots
    wait_until(lambda: cluster.figure("jobs") == 0, "nothing to be left")


# ---- who may do what -------------------------------------------------------------------------


@pytest.mark.rest
def test_who_leads_and_what_is_solved_is_the_operators(cluster: Cluster, client: Client) -> None:
    address = cluster.flow.address
    assert client.with_options(policy="flow").submit(tasks.square, 3).result(TIMEOUT_S) == 9
    for method, path in (("POST", "/v1/lead"), ("GET", "/v1/flow/problem")):
        assert ask(Access(""), address, method, path)[0] == 401
    status, body = ask(Access(ADA), address, "POST", "/v1/lead")
    assert status == 403 and "role cluster; this is of role client, user 'ada'" in body["error"]["message"]
    status, body = ask(Access(ADA), address, "GET", "/v1/flow/problem")
    assert status == 403 and "is for operators, with the cluster" in body["error"]["message"]
    status, body = ask(Access(CLUSTER), address, "POST", "/v1/lead")
    assert (status, body["plane"], body["leads"]) == (200, "flow", True), "it leads already"
    assert read_problem(cluster.run("flow", "dump", "-s", address).encode()).supply.sum() == 0  # type: ignore[arg-type]
    assert ask(Access(ADA), address, "GET", "/v1/scheduler")[1]["leads"] is True, "any user may see who leads"


@pytest.mark.rest
def test_schedulers_are_listed_with_their_policies(cluster: Cluster) -> None:
    both = ("-s", cluster.flow.address, "-s", cluster.sampling.address)
    flow, sampling = json.loads(cluster.run("schedulers", *both, "--json"))["schedulers"]
    assert (flow["policy"], flow["leads"], flow["epoch"], flow["nodes"]) == ("flow", True, 1, len(RACKS))
    assert (sampling["policy"], sampling["leads"], sampling["takes_jobs"]) == ("sparrow", None, True)
    assert sampling["slots"] == SLOTS * len(RACKS)


# ---- partition -------------------------------------------------------------------------------

HEARTBEAT_S = "0.5"


@pytest.mark.rest
def test_a_leader_that_was_cut_off_steps_down_when_it_is_back_and_no_task_starts_too_often(
    tmp_path: Path, gate: Path
) -> None:
    starts = {1: tmp_path / "once", 3: tmp_path / "thrice"}
    wires = Wires()
    with ExitStack() as stack:
        stack.callback(wires.close)
        common = (*FLOW, "--takeover-s", "0.3", "--heartbeat-s", HEARTBEAT_S, "--claim-timeout-s", "1")
        schedulers = {
            name: stack.enter_context(Daemon("scheduler", *common, *more, log=tmp_path / f"{name}.log"))
            for name, more in (("first", ()), ("second", ("--standby-of", "any")))
        }
        addresses = {name: daemon.address for name, daemon in schedulers.items()}
        for node in ("n0", "n1"):
            ways = [flag for way in wires.ways(node, addresses) for flag in ("--scheduler", way)]
            own = ("--node-id", node, "--slots", "2", "--heartbeat-s", HEARTBEAT_S)
            stack.enter_context(Daemon("node_monitor", *ways, *own, log=tmp_path / f"{node}.log"))
        first, second = addresses["first"], addresses["second"]
        wait_until(lambda: leads(first), "the first to lead", READY_S)
        for address in (first, second):
            wait_for_nodes(address, "n0", "n1")
        wait_until(lambda: get_json(second, "/v1/scheduler")["leader"], "the standby to know who leads", READY_S)
        client = stack.enter_context(Client([*wires.ways("client", addresses)], heartbeat_s=float(HEARTBEAT_S)))
        jobs = {
            attempts: client.submit_calls(
                tasks.record_start,
                [(path, task, 0.0, gate) for task in range(6)],
                options=CallOptions(policy="flow", max_attempts=attempts),
            )
            for attempts, path in starts.items()
        }
        wait_until(lambda: sum(len(tasks.read_starts(path)) for path in starts.values()) == 4, "all slots to be taken")

        wires.cut("first")
        wait_until(lambda: leads(second), "the standby to lead")
        wires.heal("first")
        wait_until(lambda: get_json(first, "/v1/scheduler")["leader"], "the one that was cut off to step down")
        found = get_json(first, "/v1/scheduler")
        assert (found["leads"], found["takes_jobs"], found["leader"]["epoch"]) == (False, False, 2)
        assert found["leader"]["name"] == schedulers["second"].announcement["name"]
        gate.touch()
        for attempts, path in starts.items():
            outcomes = jobs[attempts].report(TIMEOUT_S).tasks
            counted = Counter(task for task, _ in tasks.read_starts(path))
            for number, outcome in enumerate(outcomes):
                assert counted[number] <= outcome.attempts <= attempts
            if attempts > 1:
                assert [outcome.status.value for outcome in outcomes] == ["finished"] * 6
        assert client.with_options(policy="flow").submit(tasks.square, 3).result(TIMEOUT_S) == 9
        assert leads(second) and not leads(first)


def leads(address: str) -> bool:
    """Whether the scheduler leads, and is ready."""
    found = get_json(address, "/v1/scheduler")
    return bool(found["leads"] and found["takes_jobs"])


# ---- without the extra -----------------------------------------------------------------------

COMMANDS = {
    "scheduler": ["scheduler", "--policy", "flow", "--port", "0"],
    "solve": ["scheduler.flow", "solve", "-"],
}


@pytest.mark.parametrize("name", ["scheduler", "solve"])
def test_without_the_extra_a_line_says_what_to_install(tmp_path: Path, name: str) -> None:
    """As in an environment where only the product itself is."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numba'] = None\n")
    environment = clean_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    command = [sys.executable, "-m", *COMMANDS[name]]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, input=""
    )
    assert ended.returncode in (1, 2) and not ended.stdout
    (line,) = ended.stderr.splitlines()
    assert "the package numba" in line and "[flow]'" in line
