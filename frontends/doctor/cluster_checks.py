"""What is wrong with the cluster. Pure: from facts to findings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from frontends.doctor.facts import BlobTrip, Cluster, Machine, Visit
from frontends.doctor.findings import Finding, note, ok, wrong
from frontends.doctor.machine_checks import of_certificate
from sparrow_py.counted import counted

CLOCK_AHEAD_MAX_S = 5.0
"""Tokens and certificates bear more, but times in logs of two machines cannot be compared then."""
LISTED_MAX = 5
"""Nodes that one line names."""
READY, DRAINING = "ready", "draining"
NODE_MONITOR = "node monitor"


def of_cluster(cluster: Cluster, machine: Machine, now_s: float) -> Iterator[Finding]:
    """All that can be said of it."""
    for source, reason in cluster.unresolved:
        yield wrong(f"schedulers {source}", reason, "mend the file or the name, or name schedulers by host:port")
    if not cluster.named and all(visit.why_not for visit in cluster.schedulers):
        yield note(
            "cluster",
            "no scheduler is named, and none is at the usual address: only this machine was looked at",
            "name one with --scheduler or SPARROW_SCHEDULER",
        )
        return
    for visit in (*cluster.schedulers, *cluster.node_monitors):
        yield from of_visit(visit, machine, now_s)
    answering = [visit for visit in cluster.schedulers if not visit.why_not and not visit.refusal]
    if answering:
        yield from of_schedulers(answering, {one for visit in cluster.node_monitors for one in visit.linked})
        yield from of_nodes(answering, machine)
    for trip in cluster.trips:
        yield of_trip(trip)
    if cluster.nodes_left_out:
        yield note("nodes", f"{cluster.nodes_left_out} were not looked at, as there are so many", "raise --nodes-max")


def of_visit(visit: Visit, machine: Machine, now_s: float) -> Iterator[Finding]:
    """Whether a daemon answers, as it should."""
    subject = f"{visit.kind} {visit.address}"
    if visit.why_not:
        advice = f"start it, open its port in firewalls, or mend its address{_advertised(visit)}"
        if visit.is_other:
            advice = f"name the address of a {visit.kind}{_advertised(visit)}"
        yield wrong(subject, visit.why_not, advice)
        return
    if visit.refusal:
        yield wrong(subject, visit.refusal, "give the token or certificate that its own files name")
    elif visit.why_not_ready == DRAINING and visit.kind == NODE_MONITOR:
        yield ok(subject, "it answers, and drains")  # Which is noted of the nodes, as it may be meant.
    elif visit.why_not_ready:
        yield wrong(subject, f"it is not ready: {visit.why_not_ready}", "see its log, and Health in docs/operations.md")
    else:
        yield ok(subject, "it answers and is ready")
    yield from _of_version(visit, machine, subject)
    yield from _of_clock(visit, subject)
    if visit.certificate is not None:
        yield of_certificate(visit.certificate, now_s)


def _advertised(visit: Visit) -> str:
    return " (--advertise of the node monitor)" if visit.kind == NODE_MONITOR else ""


def _of_version(visit: Visit, machine: Machine, subject: str) -> Iterator[Finding]:
    if visit.refusal or visit.version == machine.version:
        return
    if not visit.version:
        yield note(subject, "it is of a version that does not say which", "upgrade it")
    elif abs(visit.protocol - machine.protocol) > 1:
        said = (
            f"it speaks protocol {visit.protocol}, this machine {machine.protocol}: they do not understand each other"
        )
        yield wrong(subject, said, "upgrade the older one; peers may be one version apart")
    else:
        said = f"it is of version {visit.version}, this machine's sparrow-py of {machine.version}"
        yield note(subject, said, "finish the upgrade")


def _of_clock(visit: Visit, subject: str) -> Iterator[Finding]:
    ahead_s = visit.clock_ahead_s
    if ahead_s is not None and abs(ahead_s) > CLOCK_AHEAD_MAX_S + visit.clock_error_s:
        where = "ahead of" if ahead_s > 0 else "behind"
        said = f"its clock is {abs(ahead_s):.0f} s {where} this machine's"
        yield wrong(subject, said, "let both follow a time server (chrony, systemd-timesyncd)")


def of_schedulers(schedulers: Sequence[Visit], linked: Collection[str] = ()) -> Iterator[Finding]:
    """Whether there are enough, and all have the same nodes. linked: the addresses at which node monitors have some."""
    if len(schedulers) == 1 and len(linked) > 1:
        said = f"one was looked at; node monitors are linked to {len(linked)}: {some(sorted(linked))}"
        yield note("schedulers", said, "name them all to have all looked at (--scheduler)")
    elif len(schedulers) == 1:
        yield note("schedulers", "one alone answers: jobs wait while it is away", "run a second on another machine")
    nodes = [{str(node.get("id")) for node in visit.nodes} for visit in schedulers]
    everywhere = set().union(*nodes)
    for visit, there in zip(schedulers, nodes, strict=True):
        if missing := sorted(everywhere - there):
            advice = "name this scheduler, too, to these node monitors (--scheduler), or see their logs"
            yield wrong(f"scheduler {visit.address}", f"not linked to it: {some(missing)}", advice)


def of_nodes(schedulers: Sequence[Visit], machine: Machine) -> Iterator[Finding]:
    """Whether nodes are there, take work, and run what they should."""
    nodes = {str(node.get("id")): node for visit in schedulers for node in visit.nodes}
    if not nodes:
        yield wrong("nodes", "none is linked to a scheduler", "start node monitors with --scheduler, or see their logs")
        return
    slots = sum(node.get("slots", 0) for node in nodes.values())
    yield ok("nodes", f"{len(nodes):,} with {counted(slots, 'slot')}")
    idle = [name for name, node in nodes.items() if node.get("state", READY) != READY]
    if idle:
        yield note("nodes", f"cordoned or draining: {some(idle)}", "sparrow uncordon, if that is not meant")
    for name, node in nodes.items():
        for app, reason in node.get("withdrawn", {}).items():
            said = f"executors of {app} do not start: {' '.join(str(reason).split())}"
            yield wrong(f"node {name}", said, "mend the cause: the node offers the app again by itself")
    told = [node for visit in schedulers for node in visit.nodes if node.get("twin")]
    twins = {str(node.get("id")): f"{node.get('address')} and {node['twin']}" for node in told}
    for name, both in twins.items():
        said = f"two node monitors have this name: {both}; tasks there are lost"
        yield wrong(f"node {name}", said, "give one of them another name (--node-id)")
    yield from _of_python(list(nodes.values()), machine)


def _of_python(nodes: Sequence[dict[str, Any]], machine: Machine) -> Iterator[Finding]:
    offered = {str(node["apps"]["python"]) for node in nodes if "python" in node.get("apps", {})}
    ours = ".".join(machine.python.split(".")[:2])
    if offered and ours not in offered:
        said = f"they run Python {', '.join(sorted(offered))}, this machine {ours}: its Python calls are refused"
        yield wrong("nodes", said, f"use the same minor version here, or --python of node monitors with {ours}")


def of_trip(trip: BlobTrip) -> Finding:
    """Whether large data comes to the node, and back."""
    subject = f"large data at {trip.node}, {trip.address}"
    if trip.not_sent:
        return wrong(
            subject, f"cannot be sent there: {trip.not_sent}", "see blob_dir and blob_bytes_max, and firewalls"
        )
    if trip.not_fetched:
        return wrong(subject, f"cannot be fetched: {trip.not_fetched}", "see the node monitor's log, and firewalls")
    return ok(subject, "sent and fetched")


def some(names: Sequence[str]) -> str:
    """The first of these names."""
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
