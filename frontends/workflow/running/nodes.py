"""What the nodes of a cluster offer workflows: which engines, how many CPUs, and which are warm."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frontends.daemon_http import ask, listed
from frontends.workflow.running.errors import NoEngines
from frontends.workflow.running.tasks import APP, ATTRIBUTE_PREFIX, WARM_ATTRIBUTE, Probe, encode
from sparrow_py import constraints
from sparrow_py.access.credentials import Access
from sparrow_py.constraints import Constraint
from sparrow_py.counted import counted
from sparrow_py.errors import NoScheduler, TaskError
from sparrow_py.job import JobSpec
from sparrow_py.wire.resolution import resolved

if TYPE_CHECKING:
    from sparrow_py import Client

ADVERTISED_TIMEOUT_S = 15.0
"""How long nodes may take to tell their engines once an executor runs there."""
LOOK_EVERY_S = 0.02
NONE_OFFERED = (
    "no node offers the app workflow; install the extra workflow on the nodes, and leave workflow in attribute_apps"
)


@dataclass(frozen=True, slots=True)
class Offer:
    """An engine that nodes offer. versions: that nodes state; cpus: the most of a node; warm: on some node."""

    engine: str
    versions: tuple[str, ...]
    nodes: tuple[str, ...]
    cpus: int
    warm: bool


def offers(client: Client, sources: Sequence[str], access: Access, where: Sequence[str] = ()) -> dict[str, Offer]:
    """The engines that the nodes offer. `NoEngines` if there are none.

    sources: addresses of schedulers. where: predicates that nodes have to meet. Where the executor of the app has not
    started yet, a task starts it.
    """
    predicates = [constraints.parse("where", text) for text in where]
    nodes = asked_nodes(sources, access)
    found = _offers(nodes, predicates)
    if found:
        return found
    if nodes and not any(_meets(entry, predicates) for entry in nodes):
        raise NoEngines(f"none of {counted(len(nodes), 'node')} meets {' and '.join(map(repr, where))}")
    spec = JobSpec([encode(Probe())], app=APP, name="workflow engines", where=[*where], wait_for_nodes_s=0.0)
    job = client.submit_job(spec)
    try:
        job.results()
    except TaskError as error:
        raise NoEngines(f"{NONE_OFFERED} ({error})") from None
    until_s = time.monotonic() + ADVERTISED_TIMEOUT_S
    while not (found := _offers(asked_nodes(sources, access), predicates)):
        if time.monotonic() > until_s:
            raise NoEngines("nodes offer the app workflow, and none says which engines it has")
        time.sleep(LOOK_EVERY_S)  # A scheduler may hear of attributes later than of the task.
    return found


def asked_nodes(sources: Sequence[str], access: Access) -> list[dict[str, Any]]:
    """`/v1/nodes` of the first scheduler that answers."""
    reasons = []
    for address in resolved(sources):
        try:
            answer = ask(address, access, "GET", "/v1/nodes")
        except NoScheduler as error:
            reasons.append(str(error))
        else:
            return [entry for _, entry in listed([answer], "nodes")]
    raise NoScheduler("; ".join(reasons) or f"no scheduler is named in {', '.join(sources)}")


def _meets(entry: Mapping[str, Any], predicates: Iterable[Constraint]) -> bool:
    """Whether a node of `/v1/nodes` meets them all."""
    attributes = {**entry["attributes"], "node": str(entry["id"])}
    return all(constraints.holds(one, attributes) for one in predicates)


def _offers(entries: Iterable[Mapping[str, Any]], predicates: Collection[Constraint] = ()) -> dict[str, Offer]:
    found: dict[str, Offer] = {}
    for entry in entries:
        attributes: Mapping[str, str] = entry["attributes"]
        if entry["state"] != "ready" or not _meets(entry, predicates):
            continue
        warm = attributes.get(WARM_ATTRIBUTE, "").split(",")
        cpus = max(1, int(float(entry["resources"].get("cpu", entry["slots"]))))
        for name, version in attributes.items():
            if name.startswith(ATTRIBUTE_PREFIX):
                engine = name.removeprefix(ATTRIBUTE_PREFIX)
                before = found.get(engine, Offer(engine, (), (), 0, warm=False))
                found[engine] = Offer(
                    engine,
                    tuple(sorted({*before.versions, version})),
                    (*before.nodes, str(entry["id"])),
                    max(before.cpus, cpus),
                    before.warm or engine in warm,
                )
    return dict(sorted(found.items()))
