"""The node monitor's options."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import re
from dataclasses import dataclass, field
from typing import ClassVar

from node_monitor.host.accounts import UserAccounts
from node_monitor.queueing.tickets import CHARGE_S_MAX, MAX_DURATION_S
from sparrow_py.daemon.options import DaemonOptions, option, parse_pairs, require
from sparrow_py.errors import InvalidOption, InvalidRequest
from sparrow_py.job import LEASE_S_MAX, LEASE_S_MIN, NAME_BYTES_MAX, RESOURCE_MAX
from sparrow_py.profiles import NODE_MONITOR
from sparrow_py.wire.addresses import check_address, check_source

PORT_DEFAULT = 20504
QUEUE_POLICIES = ("fair", "fifo", "priority")
SLOTS_MAX = 1 << 16
COUNT_MAX = 10_000
NODE_ID_BYTES_MAX = NAME_BYTES_MAX - len(f"/{COUNT_MAX}")
"""Of `node_id`: with `count` above 1 each node's name has its number at its end."""
WAITING_TASKS_MAX = 1 << 16
IDLE_EXIT_S_MIN, IDLE_EXIT_S_MAX = 1.0, 1e6
YIELD_WITHIN_S_MIN, YIELD_WITHIN_S_MAX = 0.001, 3600.0
LIMITS_MIN = {
    "task_memory_bytes_max": 64 << 20, "task_cpu_s_max": 1, "task_open_files_max": 64, "run_as_processes_max": 16,
}  # fmt: skip
"""With less no executor would start, or do anything."""
SQL_DATA = re.compile("([^/=]+=)?/[^\\0]*")
"""A directory whose data sets may be loaded, and the user they belong to. The executor of the app sql reads it so."""


@dataclass(kw_only=True)
class NodeMonitorOptions(DaemonOptions):
    """What an operator may set. Every option can be given as flag, as SPARROW_… or in a TOML file."""

    room: ClassVar[str] = NODE_MONITOR

    scheduler: tuple[str, ...] = option(
        ("127.0.0.1:20503",),
        "Schedulers to dial: host:port, file:PATH (one address a line, re-read) or dns:NAME:PORT. "
        "Several may be given, with commas or by repeating the flag.",
        many=True,
    )
    port: int = option(PORT_DEFAULT, "TCP port for /livez, /readyz and /metrics; 0 takes a free one.")
    advertise: str = option(
        "",
        "Address (host or host:port) at which clients and other nodes reach this one's HTTP, where large data lie; "
        "default: the one it is bound to, or for 0.0.0.0 the address of this machine towards its schedulers.",
    )
    node_id: str = option("", "Name of this node, unique in the cluster; default: the host's name and the port.")
    slots: int = option(0, "Tasks run at a time; 0: as many as this process has cores.")
    count: int = option(1, "Node monitors hosted in this process, for experiments with many nodes on one machine.")
    attr: tuple[str, ...] = option((), "KEY=VALUE: an attribute of the node, shown by `sparrow nodes`.", many=True)
    queue: str = option(
        "fair",
        "fair: weighted fair queueing between users. priority: strict priorities, fair within one. fifo: by arrival.",
    )
    charge_s_max: float = option(
        CHARGE_S_MAX,
        "Most seconds of slot time that a task is charged to its user when it starts, whatever its job states; once it "
        "has ended its real time counts.",
    )
    get_task_timeout_s: float = option(
        1.0, "A getTask that is not answered in this time releases its slot. Well above the round trip."
    )
    short_share: float = option(
        0.2,
        "Share of the slots kept for sampled tasks while a scheduler is linked that samples: tasks that a plane of "
        "another kind (flow) places here may hold the others, and one at least. From 0 to 1.",
    )
    lease_s_max: float = option(
        600.0,
        "Longest lease (lease_s of a stage) in seconds: tasks that ask for a longer one are charged this much slot "
        "time at a time, and may be asked to yield at its end.",
    )
    yield_within_s: float = option(
        5.0,
        "A task that is asked to yield its slot at the end of its lease, and has not ended so long after, is killed.",
    )
    lane_timeout_s: float = option(
        5.0, "A task that such a plane has placed here, and that finds no room for so long, is handed back."
    )
    report_idle: bool = option(
        True,
        "Tell a scheduler, one after the other, when a slot is free and nothing is queued; it probes this node first.",
    )
    reservations_per_user_max: int = option(
        1_000_000, "Reservations a user may have queued at this node; beyond it they are refused."
    )
    warm: tuple[str, ...] = option(
        ("python",), "Apps whose executors start at once, not with the first task.", many=True
    )
    enable_command: bool = option(False, "Run the app `command`: any program, as this process's user.")
    python: str = option("", "Interpreter of the python app's workers; default: the one of this process.")
    python_path: tuple[str, ...] = option(
        (),
        "Directory in which Python tasks look for modules before the interpreter's own; default: the one in which "
        "executors start.",
        many=True,
    )
    executor: tuple[str, ...] = option(
        (), "APP=COMMAND LINE: an app whose executors are started with this command, one process per slot.", many=True
    )
    shared_executor: tuple[str, ...] = option(
        (), "APP=COMMAND LINE: the same with one process that has a place for each slot.", many=True
    )
    attach: tuple[str, ...] = option(
        (), "An app whose executors connect to the socket by themselves, and are not started here.", many=True
    )
    attribute_apps: tuple[str, ...] = option(
        ("sql", "workflow"), "Apps whose executors may give this node attributes; those of others may not.", many=True
    )
    sql_data: tuple[str, ...] = option(
        (),
        "[USER=]DIR: data sets in DIR and below may be loaded by the app sql, for everybody or this user alone. "
        "Without it any may be loaded, and belong to the user who loads them; but not where tokens or TLS are set.",
        many=True,
    )
    engine_idle_s: float = option(
        300.0, "How long the app workflow keeps the process of an engine warm after its last job."
    )
    executor_env: tuple[str, ...] = option(
        (),
        "Variables of this process's environment that executors get besides the usual few, by name, with * for any "
        "characters. Without it they get all variables, but with run_as, tokens or TLS only the usual few.",
        many=True,
    )
    run_as: tuple[str, ...] = option(
        (),
        "ACCOUNT: user of this machine, by name or number, as whom executors and all tasks run. Or USER=ACCOUNT: as "
        "whom those of this user run; *=ACCOUNT: those of all others. Default: the daemon's own. Another takes root.",
        many=True,
    )
    run_as_processes_max: int = option(
        0,
        "Processes and threads that each account of run_as may have on this machine (RLIMIT_NPROC); "
        "0: no limit of ours.",
    )
    task_memory_bytes_max: int = option(
        0,
        "Memory that each process of a task may write to and shares with nobody (RLIMIT_DATA), in bytes; 0: no limit.",
    )
    task_cpu_s_max: int = option(0, "CPU seconds of each process of a task (RLIMIT_CPU); 0: no limit.")
    task_open_files_max: int = option(
        0, "File descriptors of each process of a task (RLIMIT_NOFILE); 0: no limit of ours."
    )
    waiting_tasks_max: int = option(
        256,
        "Tasks that may wait here for tasks of their own at a time, without a slot (nested tasks): each keeps its "
        "process. Beyond it a task that is about to wait gets an error. 0: none may.",
    )
    idle_workers_max: int = option(
        0,
        "Executors of an app with one place each (Python workers) that are kept for their users while they have "
        "nothing to do; 0: two for each slot. Those that were not used for longest go first.",
    )
    socket_dir: str = option(
        "", "Directory for the executors' socket, executors.sock; default: a new one below the temporary directory."
    )
    resource: tuple[str, ...] = option(
        (),
        "NAME=AMOUNT: what tasks may demand besides cpu and memory_bytes, which are detected and may be set, too.",
        many=True,
    )
    blob_dir: str = option("", "Directory for large inputs and results; default: one below the temporary directory.")
    blob_bytes_max: int = option(8 << 30, "Bytes of large inputs and results kept here; beyond it they are refused.")
    blob_retention_s: float = option(600.0, "Large data that nobody has used for so long, and no job needs, goes.")
    blob_lease_s: float = option(
        60.0,
        "Large data that no job here needs any more is kept at least so long, for its client to fetch; copies of what "
        "other nodes have go sooner if room is needed.",
    )
    output_fd: int | None = option(
        None,
        "Hand what executors write to the program at the other end of this inherited socket, as an embedded cluster "
        "does; default: it goes to standard error.",
    )
    idle_exit_s: float = option(
        0.0,
        "End, as after SIGTERM, once nothing was to be done here for so long and no job needs the large data that is "
        "here: for clusters that grow and shrink. 0: never.",
    )
    history_len_max: int = option(0, "Events remembered for debugging; 0 remembers none and is fastest.")

    attributes: dict[str, str] = field(init=False, default_factory=dict)
    resources: dict[str, float] = field(init=False, default_factory=dict)
    accounts: UserAccounts = field(init=False, default_factory=UserAccounts)
    """What `run_as` says, with accounts by the names or numbers that it gives."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scheduler = tuple(part for source in self.scheduler for part in source.split(",") if part)
        for source in self.scheduler:
            check_source(source, "scheduler")
        require(bool(self.scheduler), "scheduler", self.scheduler, "at least one scheduler")
        require(0 <= self.slots <= SLOTS_MAX, "slots", self.slots, f"a whole number from 0 to {SLOTS_MAX}")
        require(1 <= self.count <= COUNT_MAX, "count", self.count, f"a whole number from 1 to {COUNT_MAX}")
        require(self.queue in QUEUE_POLICIES, "queue", self.queue, ", ".join(QUEUE_POLICIES))
        require(self.get_task_timeout_s > 0, "get_task_timeout_s", self.get_task_timeout_s, "a number above 0")
        require(0 <= self.short_share <= 1, "short_share", self.short_share, "a number from 0 to 1")
        require(self.lane_timeout_s > 0, "lane_timeout_s", self.lane_timeout_s, "a number of seconds above 0")
        for name, least, most in (
            ("lease_s_max", LEASE_S_MIN, LEASE_S_MAX), ("yield_within_s", YIELD_WITHIN_S_MIN, YIELD_WITHIN_S_MAX),
        ):  # fmt: skip
            value = getattr(self, name)
            require(least <= value <= most, name, value, f"a number of seconds from {least:g} to {most:g}")
        require(
            0 < self.charge_s_max <= MAX_DURATION_S,
            "charge_s_max", self.charge_s_max, f"a number of seconds above 0, up to {MAX_DURATION_S:g}",
        )  # fmt: skip
        require(
            self.reservations_per_user_max >= 1,
            "reservations_per_user_max", self.reservations_per_user_max, "a whole number from 1",
        )  # fmt: skip
        require(
            0 <= self.waiting_tasks_max <= WAITING_TASKS_MAX,
            "waiting_tasks_max", self.waiting_tasks_max, f"a whole number from 0 to {WAITING_TASKS_MAX}",
        )  # fmt: skip
        require(self.idle_workers_max >= 0, "idle_workers_max", self.idle_workers_max, "a whole number from 0")
        require(
            self.idle_exit_s == 0 or IDLE_EXIT_S_MIN <= self.idle_exit_s <= IDLE_EXIT_S_MAX,
            "idle_exit_s", self.idle_exit_s,
            f"0 for never, or a number of seconds from {IDLE_EXIT_S_MIN:g} to {IDLE_EXIT_S_MAX:g}",
        )  # fmt: skip
        require(self.history_len_max >= 0, "history_len_max", self.history_len_max, "a whole number from 0")
        require(
            not self.socket_dir or self.count == 1,
            "socket_dir", self.socket_dir, "none where count is above 1: each node monitor has a socket of its own",
        )  # fmt: skip
        for name, least in LIMITS_MIN.items():
            value, allowed = getattr(self, name), f"0 for no limit, or a whole number from {least}"
            require(value == 0 or value >= least, name, value, allowed)
        require(self.blob_bytes_max >= 0, "blob_bytes_max", self.blob_bytes_max, "a whole number from 0")
        for name in ("blob_retention_s", "blob_lease_s", "engine_idle_s"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a number of seconds from 0")
        self.run_as = tuple(text for text in self.run_as if text)
        self.accounts = UserAccounts.parsed(self.run_as)
        require(
            not self.accounts.maps or self.guarded,
            "run_as", ", ".join(self.run_as), "ACCOUNT alone, unless tokens or TLS say who a user is",
        )  # fmt: skip
        self._check_node_id()
        if self.advertise:
            _check_advertised(self.advertise)
        for entry in self.python_path:
            there = os.path.exists(entry)  # noqa: PTH110 - raises no error for a place that we may not look into
            require(there, "python_path", entry, "a directory that is there")
        for text in self.sql_data:  # Whether or not the app sql is installed.
            allowed = "DIR or USER=DIR, where DIR begins with /"
            require(SQL_DATA.fullmatch(text) is not None, "sql_data", text, allowed)
        self.attributes = parse_pairs("attr", self.attr)
        for name, text in parse_pairs("resource", self.resource).items():
            self.resources[name] = _amount(name, text)

    def _check_node_id(self) -> None:
        """It is written into tables and logs, and given to commands."""
        plain = self.node_id.isprintable() and not any(map(str.isspace, self.node_id))
        short = len(self.node_id.encode("utf-8", "replace")) <= NODE_ID_BYTES_MAX
        allowed = f"printable characters without spaces, at most {NODE_ID_BYTES_MAX} bytes"
        require(plain and short, "node_id", self.node_id, allowed)

    def names(self) -> list[str]:
        """The names that this daemon is known by: what it tells others, too."""
        return [*super().names(), self.advertise] if self.advertise else super().names()

    @property
    def executor_env_patterns(self) -> tuple[str, ...] | None:
        """What executors get of the environment besides what is usual; None: all."""
        return self.executor_env if self.executor_env or self.run_as or self.guarded else None

    @property
    def warm_apps(self) -> tuple[str, ...]:
        """The apps to warm; `command` is, if it is enabled: its one process costs little."""
        return tuple(dict.fromkeys((*self.warm, "command"))) if self.enable_command else self.warm


def with_port(address: str, port: str | int) -> str:
    """An address (host or host:port) with this port, if it has none."""
    has_one = "]:" in address if address.startswith("[") else ":" in address
    return address if has_one else f"{address}:{port}"


def _check_advertised(address: str) -> None:
    try:
        whole = check_address(with_port(address, PORT_DEFAULT))
    except InvalidRequest:
        allowed = "host or host:port, with an IPv6 host in brackets as in [::1]:20504"
        raise InvalidOption("advertise", address, allowed) from None
    host = whole.rpartition(":")[0].strip("[]")
    is_all = False
    with contextlib.suppress(ValueError):  # A name.
        is_all = ipaddress.ip_address(host).is_unspecified
    allowed = "an address at which others reach this machine; without this option one is found"
    require(not is_all, "advertise", address, allowed)


def _amount(name: str, text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    require(0 <= amount <= RESOURCE_MAX, "resource", f"{name}={text}", f"a number from 0 to {RESOURCE_MAX:g}")
    return amount
