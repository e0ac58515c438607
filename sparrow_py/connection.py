"""From what a client is given as its schedulers to what its session is made of; or an embedded cluster, if nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from sparrow_py.access.credentials import Access, client_token
from sparrow_py.auth import TLS
from sparrow_py.errors import InvalidRequest
from sparrow_py.wire.addresses import sources_of_environment

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster, SchedulerHere
    from sparrow_py.remote_cluster import RemoteCluster


@dataclass(frozen=True, slots=True)
class Connection:
    """How a client reaches its schedulers.

    sources: what to dial (see `addresses`). access: with which token and certificate. here: the scheduler in this
    process, in place of those. cluster: whose schedulers they are, if that is embedded. own: whether the client has
    started that cluster, and ends it. remote: whose they are, if that has its node monitors on other machines.
    """

    sources: str | Sequence[str]
    access: Access
    here: SchedulerHere | None = None
    cluster: LocalCluster | None = None
    own: bool = False
    remote: RemoteCluster | None = None

    @property
    def watched(self) -> LocalCluster | RemoteCluster | None:
        """The cluster that this program has started, and that says when it can do no more."""
        return self.cluster if self.remote is None else self.remote

    def check_outlives(self, job_id: str) -> None:
        """`InvalidRequest` if the schedulers end with the client, and with them a job that it would let go of."""
        if self.own or self.here is not None:
            raise InvalidRequest("job", job_id, "a job of a cluster that does not end with this client")

    def check_dialled(self, actor: object) -> None:
        """`InvalidRequest` if it is that of a task's own client, which its node relays: such a client's process is not
        one that actors can dial."""
        if not self.sources and self.here is None and self.cluster is None:
            raise InvalidRequest("cls", actor, "actors of a client outside of tasks; tasks can be given their handles")

    def close(self) -> None:
        """End what was started for the client."""
        if self.own and self.cluster is not None:
            self.cluster.stop()


def connection_to(
    schedulers: str | Sequence[str] | LocalCluster | RemoteCluster | SchedulerHere | None,
    token: str | None,
    tls: TLS | None,
    *,
    forward_output: bool = True,
) -> Connection:
    """The connection to these schedulers; None: to those of the environment, or to a cluster that is started here.

    `InvalidRequest` for what cannot be; `ClusterError` if no cluster can be started.
    """
    if schedulers is not None and not forward_output:
        allowed = "True where schedulers are given: a LocalCluster has an option of its own, others forward nothing"
        raise InvalidRequest("forward_output", forward_output, allowed)
    if schedulers is None:
        schedulers = sources_of_environment() or None
    if isinstance(schedulers, str | list | tuple):
        return Connection(schedulers, Access.of_client(token, tls))
    from sparrow_py.cluster import LocalCluster, SchedulerHere  # Which clients of other clusters do without.

    if isinstance(schedulers, SchedulerHere):
        return Connection((), Access.of_client(token, tls), here=schedulers)
    if getattr(schedulers, "is_remote", False):
        remote = cast("RemoteCluster", schedulers)
        access = Access.of_client(remote.token if token is None else token, tls)
        return Connection(remote.addresses, access, remote=remote)
    given = Access.of("" if token is None else client_token(token), tls)  # Checked before anything is started.
    if schedulers is not None and not hasattr(schedulers, "access"):
        raise InvalidRequest(
            "schedulers", schedulers, "addresses, a LocalCluster, an SSHCluster, a SlurmCluster or a SchedulerHere"
        )
    own = schedulers is None
    cluster = LocalCluster(forward_output=forward_output) if schedulers is None else cast("LocalCluster", schedulers)
    default = cluster.access
    access = replace(default if tls is None else given, token=given.token or default.token)
    return Connection(cluster.dialled, access, cluster=cluster, own=own)
