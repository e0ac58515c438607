"""The scheduler's options."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import ClassVar

from sparrow_py.daemon.options import DaemonOptions, option, parse_pairs, require
from sparrow_py.job import PRIORITY_MAX, PROBE_RATIO_MAX
from sparrow_py.profiles import SCHEDULER
from sparrow_py.wire.messages import ALTRUISTIC, DEPTH_MAX, FLOW, MESSAGE_OVERHEAD_BYTES

PORT_DEFAULT = 20503
PLACEMENTS = ("sparrow", "batch", "per-task", "random", "central")
"""How tasks come to nodes: `planes` says by which plane."""
POLICIES = ("sparrow", "flow", "altruistic")
"""The planes, as `--policy` names them: `planes` says which is which."""
NEEDS_POLICY = {
    **dict.fromkeys(("flow_policy", "flow_preemption", "flow_tasks_max", "flow_age_s", "flow_gang_wait_s"), (FLOW,)),
    **dict.fromkeys(("altruistic_policy", "altruistic_queue", "stage_history"), (ALTRUISTIC,)),
    **dict.fromkeys(("nodes_expected", "standby_of", "takeover_s"), (FLOW, ALTRUISTIC)),
}
"""Options that matter to these policies alone; the last ones to those that have a leader."""
FLOW_AGE_S_MIN, FLOW_AGE_S_MAX = 0.01, 3600.0
ORDERS = ("reserved", "oldest", "shortest")
"""Which of a user's waiting stages is served first: see `sampling.order`."""
OVERTAKEN_MAX_DEFAULT = 10_000
"""Tasks that may overtake a stage: 1,000 slots start so many in a second, if one takes 100 ms."""
USER_PRIORITY_MAX = PRIORITY_MAX
"""And as low, below zero."""
WEIGHT_MIN, WEIGHT_MAX = 1e-6, 1e6
"""What node monitors take; only the ratios of weights matter."""


@dataclass(kw_only=True)
class SchedulerOptions(DaemonOptions):
    """What an operator may set. Every option can be given as flag, as SPARROW_… or in a TOML file."""

    room: ClassVar[str] = SCHEDULER

    port: int = option(PORT_DEFAULT, "TCP port for clients, node monitors and HTTP; 0 takes a free one.")
    unplaced_tasks_max: int = option(
        1_000_000,
        "Unplaced tasks a user may have here; beyond it jobs are refused with a retry-after. "
        "A task takes about 0.2 kB and its payload.",
    )
    held_bytes_max: int = option(
        4 << 30,
        "Bytes that a user's unfinished jobs may take here: payloads, results that later stages need, outcomes that a "
        "client has not read, stages, names; beyond it jobs are refused with a retry-after, "
        "and a job that goes beyond it with its own tasks is cancelled.",
    )
    user_weight: tuple[str, ...] = option(
        (), "USER=WEIGHT: the user's share under fair queueing; default 1.", many=True
    )
    user_priority: tuple[str, ...] = option(
        (),
        "USER=PRIORITY: whole number, higher first, for node monitors with --queue priority; default 0. "
        "Also the highest that a job of the user may state.",
        many=True,
    )
    probe_sharing: bool = option(
        True, "Pass a placed job's surplus reservations to the same user's oldest unplaced job of the same kind."
    )
    order: str = option(
        "shortest",
        "Which of a user's jobs of the same kind is served first, whichever of them a reservation was made for: "
        "shortest (least unplaced tasks × expected duration), oldest, or reserved (the one it was made for).",
    )
    overtaken_max: int = option(
        OVERTAKEN_MAX_DEFAULT,
        "With order=shortest, a job that more tasks have overtaken goes first: so that long jobs do not starve. "
        "About what the cluster starts in the time that a long job may be held up.",
    )
    probe_ratio_max: float = option(
        0.0,
        "Raise the probe ratio of jobs up to this while tasks wait: d + f · (max - d), f being their mean wait over "
        "their mean duration, at most 1. 0: never. For many schedulers on a busy cluster; costs messages.",
    )
    push_to_idle: bool = option(
        True,
        "Send a task at once, without reservations, to a slot of which its node monitor has said that it is free; "
        "if it is not by then, the task comes back and is placed as any other. Saves a round trip and most messages.",
    )
    placement: str = option(
        "sparrow",
        "How tasks come to nodes: sparrow (batch sampling with late binding), or, for comparison, batch (the shortest "
        "queues of a job's d·m random nodes), per-task (the shorter queue of d random nodes for each task), random, or "
        "central (the least loaded node; tasks wait here for free slots): of this one there must be only one.",
    )
    policy: str = option(
        "sparrow",
        "How jobs are scheduled: sparrow (nodes for each are sought by `placement`); flow: the whole cluster is "
        "solved as a flow network, again and again, by one scheduler; or altruistic: one scheduler shares the cluster "
        "out, and jobs yield what they do not need now. Both need the extra flow.",
    )
    flow_policy: str = option(
        "quincy",
        "With policy=flow: what placements cost, by the name of a policy or as module:Class; docs/flow.md lists them.",
    )
    flow_preemption: bool = option(
        False,
        "With policy=flow: stop tasks of jobs that are preemptible for others that are worth more, and move them to "
        "better places.",
    )
    flow_tasks_max: int = option(
        200_000, "With policy=flow: tasks that are weighed against each other at a time; the others wait, oldest first."
    )
    flow_age_s: float = option(
        1.0, "With policy=flow: while tasks wait, places are sought anew so often even if nothing has happened."
    )
    flow_gang_wait_s: float = option(
        30.0,
        "With policy=flow: for the gang that has waited for longest, and for so long, slots are kept free as they get "
        "free, until all of it can start, but for no longer than this time again.",
    )
    altruistic_policy: str = option(
        "altruistic",
        "With policy=altruistic: which scheduler, with its settings: altruistic, altruistic/horizon=barrier, or, for "
        "comparison, drf, tetris, srtf and others; docs/altruistic.md lists them.",
    )
    altruistic_queue: tuple[str, ...] = option(
        (),
        "USER=PART or USER=PART:MOST, with altruistic_policy=capacity: the part of the cluster that is guaranteed to "
        "the user's jobs, and the most that they may have; default 1. All other users share what is left.",
        many=True,
    )
    stage_history: str = option(
        "",
        "With policy=altruistic: a file, made if need be, in which is kept what tasks of each stage have taken, for "
        "jobs that do not say so. Empty: it is forgotten when the scheduler ends.",
    )
    cancellation: bool = option(
        True, "Cancel a placed job's reservations that nobody can use; without it each is asked for in vain once."
    )
    wait_for_nodes_s: float = option(
        300.0,
        "Tasks that no connected node may run wait so long for one, unless their job says otherwise; then they "
        "are lost.",
    )
    client_grace_s: float = option(
        10.0,
        "A client that vanished has so long to come back or to move its jobs; then what has not started is cancelled, "
        "and outcomes that it has not read are kept no longer.",
    )
    detached_jobs_max: int = option(
        100, "Jobs of a user that their clients have let go of and that are kept here, those that run included."
    )
    detached_retention_s_max: float = option(
        86_400.0,
        "The longest that a client may have a job kept after its end when it lets go of it; the outcomes count to "
        "held_bytes_max meanwhile.",
    )
    claim_timeout_s: float = option(
        1.0, "Node monitors have so long to say what they have of a job that comes from another scheduler."
    )
    settling_s: float = option(
        2.0,
        "For so long after its start, or after all node monitors were gone and the first is back, a scheduler waits "
        "for the others before it starts tasks of a job from another scheduler that no node monitor has named.",
    )
    nodes_expected: int = option(
        0,
        "For a plane that has a leader: once so many node monitors are linked, and have said that no other scheduler "
        "leads, this one leads without waiting for others; 0: nobody knows how many there are.",
    )
    standby_of: str = option(
        "",
        "For a plane that has a leader: stand by while another scheduler leads it, and lead once that is gone: any, or "
        "the address of that scheduler as node monitors dial it. Without it a second scheduler does not start.",
    )
    takeover_s: float = option(
        3.0, "A standby leads once most node monitors have seen no link to the scheduler that leads for so long."
    )
    http_body_bytes_max: int = option(16 << 20, "Largest body of a job that comes over HTTP.")
    http_results_bytes_max: int = option(
        256 << 20,
        "Bytes of results kept for jobs that came over HTTP; beyond it the jobs that ended first go, and then tasks' "
        "results are not kept. Each task counts for about 80 bytes from the start.",
    )
    http_retention_s: float = option(600.0, "The results of a job that came over HTTP are kept so long after its end.")
    history_len_max: int = option(0, "Events remembered for debugging; 0 remembers none and is fastest.")
    audit_log: str = option(
        "",
        "File for a line of JSON per event: jobs, reservations, asks, tasks, no-ops, cancellations. {port} in its name "
        "becomes the scheduler's port. Default: no such log, which costs nothing.",
    )
    audit_log_bytes_max: int = option(
        1 << 30, "An audit log that has so many bytes is renamed to FILE.1, over the one before, and begun anew."
    )
    frame_bytes_max: int = option(
        1 << 20, "Largest frame accepted or sent, so also about the largest task and result, in bytes."
    )
    nested_depth_max: int = option(
        100,
        "How deep jobs may be nested that tasks submit (`Client.current`): a job that is deeper is refused, and so a "
        "recursion without end is.",
    )
    clients_max: int = option(
        10_000, "Clients connected at a time; four times as many within tasks, which open no files here."
    )
    nodes_max: int = option(20_000, "Node monitors connected at a time.")

    weights: dict[str, float] = field(init=False, default_factory=dict)
    priorities: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("unplaced_tasks_max", "held_bytes_max", "clients_max", "nodes_max"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "a whole number from 1")
        depth = self.nested_depth_max
        require(0 <= depth <= DEPTH_MAX, "nested_depth_max", depth, f"a whole number from 0 to {DEPTH_MAX}")
        require(self.frame_bytes_max >= 16384, "frame_bytes_max", self.frame_bytes_max, "a whole number from 16384")
        for name, least in (("http_body_bytes_max", 1024), ("http_results_bytes_max", 0)):
            require(getattr(self, name) >= least, name, getattr(self, name), f"a whole number from {least}")
        require(self.detached_jobs_max >= 0, "detached_jobs_max", self.detached_jobs_max, "a whole number from 0")
        seconds = ("wait_for_nodes_s", "client_grace_s", "claim_timeout_s", "settling_s", "takeover_s")
        for name in (*seconds, "flow_gang_wait_s", "http_retention_s", "detached_retention_s_max"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a number of seconds from 0")
        expected = f"a whole number from 0 to nodes_max = {self.nodes_max}"
        require(0 <= self.nodes_expected <= self.nodes_max, "nodes_expected", self.nodes_expected, expected)
        allowed = 'empty, "any", or an address host:port'
        require(_is_standby_of(self.standby_of), "standby_of", self.standby_of, allowed)
        require(self.placement in PLACEMENTS, "placement", self.placement, ", ".join(PLACEMENTS))
        require(self.policy in POLICIES, "policy", self.policy, ", ".join(POLICIES))
        require(self.flow_tasks_max >= 1, "flow_tasks_max", self.flow_tasks_max, "a whole number from 1")
        age_s = f"seconds from {FLOW_AGE_S_MIN:g} to {FLOW_AGE_S_MAX:g}"
        require(FLOW_AGE_S_MIN <= self.flow_age_s <= FLOW_AGE_S_MAX, "flow_age_s", self.flow_age_s, age_s)
        self._check_policy_options()
        require(self.order in ORDERS, "order", self.order, ", ".join(ORDERS))
        require(
            self.probe_ratio_max == 0 or 1 <= self.probe_ratio_max <= PROBE_RATIO_MAX,
            "probe_ratio_max",
            self.probe_ratio_max,
            f"0 for never, or a number from 1 to {PROBE_RATIO_MAX:g}",
        )
        require(self.overtaken_max >= 0, "overtaken_max", self.overtaken_max, "a whole number of tasks from 0")
        require(self.history_len_max >= 0, "history_len_max", self.history_len_max, "a whole number from 0")
        require(
            self.audit_log_bytes_max >= 1 << 20,
            "audit_log_bytes_max", self.audit_log_bytes_max, "a whole number from 1048576",
        )  # fmt: skip
        for user, text in parse_pairs("user_weight", self.user_weight).items():
            self.weights[user] = _weight(user, text)
        for user, text in parse_pairs("user_priority", self.user_priority).items():
            self.priorities[user] = _priority(user, text)

    def _check_policy_options(self) -> None:
        """`InvalidOption` for what would change nothing, as somebody who states it expects something else."""
        defaults = {one.name: one.default for one in fields(self)}
        for name, policies in NEEDS_POLICY.items():
            default = defaults[name]
            allowed = f"its default, {default!r}; any other value needs --policy {' or '.join(policies)}"
            is_right = self.policy in policies or getattr(self, name) == default
            require(is_right, name, getattr(self, name), allowed)

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload or common bytes: a frame less the room that a message needs besides."""
        return self.frame_bytes_max - MESSAGE_OVERHEAD_BYTES

    def weight(self, user: str) -> float:
        """The user's weight under fair queueing."""
        return self.weights.get(user, 1.0)

    def priority(self, user: str) -> int:
        """Of the user's jobs that state none, and the highest that they may state."""
        return self.priorities.get(user, 0)


def _is_standby_of(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return text in ("", "any") or (bool(host) and port.isdecimal())


def _priority(user: str, text: str) -> int:
    least, most = -USER_PRIORITY_MAX, USER_PRIORITY_MAX
    try:
        value = int(text)
    except ValueError:
        value = most + 1
    require(least <= value <= most, "user_priority", f"{user}={text}", f"a whole number from {least} to {most}")
    return value


def _weight(user: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    allowed = f"a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"
    require(WEIGHT_MIN <= value <= WEIGHT_MAX, "user_weight", f"{user}={text}", allowed)
    return value
