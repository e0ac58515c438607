"""`sparrow doctor`: what it finds in plain facts, and that it gathers facts of a real machine and cluster."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frontends.doctor import machine_gathering
from frontends.doctor.cluster_checks import of_cluster
from frontends.doctor.facts import BlobTrip, Certificate, Cluster, Disk, Machine, Secret, Visit
from frontends.doctor.findings import Finding, Level
from frontends.doctor.machine_checks import DAY_S, of_certificate, of_disk, of_machine, of_secret
from frontends.doctor.visiting import clock_ahead_s
from sparrow_py import LocalCluster
from tests.support.guarded import Authority
from tests.support.run_fakes import assert_one_line, sparrow

GIB = 1 << 30
NOW_S = 1e9
MACHINE = Machine("3.12.1", "0.1.0", 4, 20_000, 16 * GIB, 8 * GIB, (Disk("/tmp", "", 100 * GIB, 50 * GIB),))
NODE: dict[str, Any] = {
    "id": "n1", "slots": 4, "apps": {"python": "3.12"}, "state": "ready", "withdrawn": {}, "address": "10.0.0.3:20504",
}  # fmt: skip
SCHEDULER = Visit("scheduler", "10.0.0.1:20503", version="0.1.0", protocol=4, nodes=(NODE,))
OTHER = replace(SCHEDULER, address="10.0.0.2:20503")
NODE_MONITOR = Visit("node monitor", "10.0.0.3:20504", version="0.1.0", protocol=4)
WELL = Cluster(True, (), (SCHEDULER, OTHER), (NODE_MONITOR,), (BlobTrip("n1", "10.0.0.3:20504"),))


def levels(findings: Iterable[Finding]) -> set[Level]:
    return {finding.level for finding in findings}


def the_wrong_one(findings: Iterable[Finding]) -> str:
    """The only line that says that something is wrong."""
    (line,) = [finding.line() for finding in findings if finding.level is Level.WRONG]
    assert "\n" not in line
    return line


class TestMachine:
    def test_nothing_is_wrong_with_a_good_one(self) -> None:
        assert levels(of_machine(MACHINE)) == {Level.OK}

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"files_max": 1024}, "open files: a process may have 1,024 open; raise the hard limit"),
            ({"memory_free_bytes": GIB // 2}, "memory: 0.5 GiB of 16.0 GiB free; end"),
            ({"disks": (Disk("/b", "", 9 * GIB, GIB - 1),)}, "disk /b: 1.0 GiB of 9.0 GiB free; make room"),
            ({"disks": (Disk("/b", "user 7 may not write in /"),)}, "disk /b: user 7 may not write in /; name another"),
        ],
    )
    def test_what_is_wrong_with_another(self, change: dict[str, Any], said: str) -> None:
        assert the_wrong_one(of_machine(replace(MACHINE, **change))).startswith(f"WRONG  {said}")

    def test_what_may_be_meant(self) -> None:
        assert of_disk(Disk("/b", "", 9 * GIB, 7 * GIB)).level is Level.NOTE
        missing = of_disk(Disk("/b/blbos", "", 99 * GIB, 70 * GIB, is_missing=True))
        assert missing.level is Level.NOTE and "it is not there; 70.0 GiB of 99.0 GiB free" in missing.line()
        assert levels(of_machine(replace(MACHINE, memory_bytes=0))) == {Level.OK, Level.NOTE}

    def test_this_machine_is_one(self, tmp_path: Path) -> None:
        found = machine_gathering.machine([str(tmp_path / "not" / "there")])
        assert found.memory_bytes >= found.memory_free_bytes > 0
        assert found.files_max > 0
        assert of_disk(found.disks[0]).level is not Level.OK and found.disks[0].is_missing
        assert not machine_gathering.disk(str(tmp_path)).is_missing
        assert found.disks[0].size_bytes >= found.disks[0].free_bytes > 0

    def test_memory_as_linux_says_it(self) -> None:
        text = "MemTotal:       2048 kB\nMemFree:  1 kB\nMemAvailable:   1024 kB\nHugePages_Total:       0\n"
        assert machine_gathering.meminfo(text) == (2 << 20, 1 << 20)


class TestToken:
    @pytest.mark.parametrize(
        ("secret", "level"),
        [
            (Secret(""), Level.NOTE),
            (Secret("SPARROW_TOKEN"), Level.OK),
            (Secret("/t", age_s=3 * DAY_S), Level.OK),
            (Secret("/t", age_s=366 * DAY_S), Level.WRONG),
            (Secret("/t", is_known=False, age_s=1.0), Level.WRONG),
            (Secret("/t", "allowed is a readable file"), Level.WRONG),
        ],
    )
    def test_how_bad_it_is(self, secret: Secret, level: Level) -> None:
        assert of_secret(secret).level is level

    def test_gathered_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("t" * 32)
        path.chmod(0o600)
        os.utime(path, (NOW_S, NOW_S))
        assert machine_gathering.secret(str(path), {}, NOW_S + 5) == Secret(str(path), age_s=5.0)
        path.write_text("cluster sha256:" + "0" * 64)
        assert not machine_gathering.secret(str(path), {}, NOW_S).is_known
        path.chmod(0o644)
        assert f"chmod go-rwx {path}" in machine_gathering.secret(str(path), {}, NOW_S).why_not

    def test_gathered_from_the_environment(self) -> None:
        assert machine_gathering.secret(None, {"SPARROW_TOKEN": "t" * 32}, NOW_S) == Secret("SPARROW_TOKEN")
        assert machine_gathering.secret(None, {"SPARROW_TOKEN": "short"}, NOW_S).why_not
        assert machine_gathering.secret(None, {}, NOW_S) == Secret("")


class TestCertificates:
    @pytest.mark.parametrize(
        ("left_days", "level", "said"),
        [
            (90, Level.OK, "expires in 90 days"),
            (13, Level.WRONG, "expires in 13 days; issue"),
            (1, Level.WRONG, "expires in 24 hours; issue"),
            (-3, Level.WRONG, "expired 3 days ago; issue"),
        ],
    )
    def test_their_dates(self, left_days: float, level: Level, said: str) -> None:
        finding = of_certificate(Certificate("c", "", NOW_S + left_days * DAY_S), NOW_S)
        assert finding.level is level
        assert said in finding.line()

    def test_gathered_by_a_handshake(self, tmp_path: Path) -> None:
        tls = Authority(tmp_path).issue("ant", "cluster")
        own, of_authority = machine_gathering.certificates(tls)
        assert not own.why_not
        assert own.not_after_s is not None
        assert of_authority.not_after_s is not None
        assert NOW_S < own.not_after_s < of_authority.not_after_s

    @pytest.mark.parametrize("role", ["cluster", "client"])
    def test_one_that_has_expired(self, role: str, tmp_path: Path) -> None:
        own, _ = machine_gathering.certificates(Authority(tmp_path).issue("ant", role, expired=True))
        assert own.why_not.endswith("does not accept it: certificate has expired")

    def test_one_of_another_authority(self, tmp_path: Path) -> None:
        tls = Authority(tmp_path / "one").issue("ant", "cluster")
        own, _ = machine_gathering.certificates(replace(tls, ca=str(Authority(tmp_path / "two").file)))
        assert "does not accept it" in own.why_not

    def test_what_is_no_certificate(self, tmp_path: Path) -> None:
        tls = Authority(tmp_path).issue("ant", "cluster")
        Path(tls.cert).write_text("nonsense")
        Path(tls.ca).write_text("nonsense")
        assert all("no certificate" in one.why_not for one in machine_gathering.certificates(tls))


class TestCluster:
    def test_nothing_is_wrong_with_a_good_one(self) -> None:
        assert levels(of_cluster(WELL, MACHINE, NOW_S)) == {Level.OK}

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"unresolved": (("dns:s:1", "no such name"),)}, "schedulers dns:s:1: no such name; mend"),
            (
                {"schedulers": (SCHEDULER, replace(OTHER, why_not="no answer: Connection refused", nodes=()))},
                "start it",
            ),
            ({"schedulers": (SCHEDULER, replace(OTHER, why_not_ready="draining"))}, "it is not ready: draining"),
            ({"schedulers": (SCHEDULER, replace(OTHER, refusal="the token is wrong", nodes=()))}, "give the token"),
            ({"schedulers": (SCHEDULER, replace(OTHER, version="0.3.0", protocol=6))}, "it speaks protocol 6"),
            ({"schedulers": (SCHEDULER, replace(OTHER, nodes=()))}, "scheduler 10.0.0.2:20503: not linked to it: n1"),
            ({"schedulers": (replace(SCHEDULER, nodes=()),)}, "nodes: none is linked to a scheduler"),
            ({"node_monitors": (replace(NODE_MONITOR, why_not="no answer: timed out"),)}, "--advertise"),
            ({"node_monitors": (replace(NODE_MONITOR, clock_ahead_s=-90.0, clock_error_s=0.5),)}, "90 s behind this"),
            (
                {"node_monitors": (replace(NODE_MONITOR, certificate=Certificate("of it", "", NOW_S)),)},
                "certificate of it: expires in 0 hours",
            ),
            ({"trips": (BlobTrip("n1", "a:1", not_sent="507"),)}, "large data at n1, a:1: cannot be sent there: 507"),
            ({"trips": (BlobTrip("n1", "a:1", not_fetched="gone"),)}, "cannot be fetched: gone"),
        ],
    )
    def test_what_is_wrong_with_another(self, change: dict[str, Any], said: str) -> None:
        assert said in the_wrong_one(of_cluster(replace(WELL, **change), MACHINE, NOW_S))

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"withdrawn": {"sql": "no\nduckdb"}}, "WRONG  node n1: executors of sql do not start: no duckdb; mend"),
            (
                {"twin": "10.0.0.9:20504 (dialled from 10.0.0.9)"},
                "WRONG  node n1: two node monitors have this name: 10.0.0.3:20504 and 10.0.0.9:20504 (dialled",
            ),
            ({"apps": {"python": "3.11"}}, "they run Python 3.11, this machine 3.12"),
        ],
    )
    def test_what_is_wrong_with_nodes(self, change: dict[str, Any], said: str) -> None:
        both = tuple(replace(visit, nodes=({**NODE, **change},)) for visit in WELL.schedulers)
        assert said in the_wrong_one(of_cluster(replace(WELL, schedulers=both), MACHINE, NOW_S))

    @pytest.mark.parametrize(
        "change",
        [
            {"schedulers": (SCHEDULER,)},
            {"schedulers": (SCHEDULER, replace(OTHER, version="0.2.0", protocol=5))},
            {"schedulers": (SCHEDULER, replace(OTHER, version="", protocol=0))},
            {"schedulers": tuple(replace(one, nodes=({**NODE, "state": "cordoned"},)) for one in (SCHEDULER, OTHER))},
            {"nodes_left_out": 3},
        ],
    )
    def test_what_may_be_meant(self, change: dict[str, Any]) -> None:
        assert levels(of_cluster(replace(WELL, **change), MACHINE, NOW_S)) == {Level.OK, Level.NOTE}

    def test_a_scheduler_that_is_not_named_is_no_missing_one(self) -> None:
        linked = replace(NODE_MONITOR, linked=("10.0.0.1:20503", "10.0.0.2:20503"))
        cluster = replace(WELL, schedulers=(SCHEDULER,), node_monitors=(linked,))
        (finding,) = [one for one in of_cluster(cluster, MACHINE, NOW_S) if one.level is Level.NOTE]
        assert "node monitors are linked to 2: 10.0.0.1:20503, 10.0.0.2:20503; name them all" in finding.line()

    def test_a_node_that_drains_is_noted_once(self) -> None:
        both = tuple(replace(one, nodes=({**NODE, "state": "draining"},)) for one in WELL.schedulers)
        cluster = replace(WELL, schedulers=both, node_monitors=(replace(NODE_MONITOR, why_not_ready="draining"),))
        found = list(of_cluster(cluster, MACHINE, NOW_S))
        assert levels(found) == {Level.OK, Level.NOTE}
        assert sum("drain" in one.line() and one.level is Level.NOTE for one in found) == 1

    def test_a_clock_is_not_blamed_for_a_slow_answer(self) -> None:
        slow = replace(NODE_MONITOR, clock_ahead_s=6.0, clock_error_s=2.0)
        assert levels(of_cluster(replace(WELL, node_monitors=(slow,)), MACHINE, NOW_S)) == {Level.OK}

    @pytest.mark.parametrize(
        ("date", "ahead_s"),
        [
            ("Sun, 09 Sep 2001 01:46:50 GMT", 10.25),
            ("Sun, 09 Sep 2001 01:46:40 GMT", 0.25),
            ("noon", None),
            (None, None),
        ],
    )
    def test_how_far_a_clock_is_ahead(self, date: str | None, ahead_s: float | None) -> None:
        assert clock_ahead_s(date, NOW_S, 0.5) == ahead_s


class TestCommand:
    def test_without_a_cluster_it_says_so_and_looks_at_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("frontends.cli.doctor.DEFAULT_SCHEDULER", "127.0.0.1:1")
        result = sparrow("doctor")
        assert "only this machine was looked at; name one with --scheduler" in result.stdout
        assert (result.exit_code == 1) == ("\nWRONG" in result.stdout)

    def test_a_scheduler_that_is_named_and_does_not_answer_is_wrong(self) -> None:
        result = sparrow("doctor", "-s", "127.0.0.1:1")
        assert result.exit_code == 1
        assert "WRONG  scheduler 127.0.0.1:1: no answer: Connection refused; start it" in result.stdout

    def test_a_token_file_that_is_not_there_is_found_and_no_mistake_in_what_was_asked(self, tmp_path: Path) -> None:
        result = sparrow("doctor", "-s", "127.0.0.1:1", "--token-file", str(tmp_path / "none"), "--json")
        found = json.loads(result.stdout)
        assert (result.exit_code, found["well"]) == (1, False)
        (token,) = [finding for finding in found["findings"] if finding["subject"].startswith("token")]
        assert (token["level"], token["advice"]) == ("wrong", "mend the file, or name another")

    @pytest.mark.parametrize("flags", [["-s", "nonsense"], ["--nodes-max", "-1"], ["--tls-ca", "x"]])
    def test_a_mistake_is_one_line(self, flags: list[str]) -> None:
        assert_one_line(sparrow("doctor", *flags), 2)

    def test_a_cluster_that_is_well(self, cluster: LocalCluster) -> None:
        result = sparrow("doctor", "-s", ",".join(cluster.addresses))
        assert not re.findall(r"^WRONG  (?:scheduler|node|large).*", result.stdout, re.M)
        assert result.stdout.count("sent and fetched") == 2
        assert result.stdout.count("it answers and is ready") == 3
        monitor = re.findall(r"node monitor (\S+): it answers", result.stdout)[0]
        result = sparrow("doctor", "-s", monitor)
        said = f"WRONG  scheduler {monitor}: what answers there is a node monitor; name the address of a scheduler\n"
        assert said in result.stdout
