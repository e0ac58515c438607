"""How a workflow is planned and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines import engines as all_engines
from frontends.workflow.engines.base import Rules
from frontends.workflow.errors import EngineMissing
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.running.errors import NoEngines
from frontends.workflow.switches import Switches
from frontends.workflow.user_files import history_path
from sparrow_py import constraints
from sparrow_py.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a workflow is planned and run.

    engines: names of those that may be used; () for all. off: names of rules to switch off (`switches.NAMES`).
    store: the directory between jobs, which all nodes must see. store_bytes_max: of one run. resume: go on with an
    interrupted run. threads: of each job, which demands as many CPUs; None for all of a node. memory_bytes_max: of each
    job's process; 0 for no limit. where: further predicates over nodes. cpu_bias: from 0 to 1, how far CPU seconds
    count in the place of seconds. history: the file; None for none. rates: instead of the calibration file's.
    """

    engines: Sequence[str] = ()
    off: Sequence[str] = ()
    store: str | Path | None = None
    store_bytes_max: int | None = None
    resume: bool = False
    threads: int | None = None
    memory_bytes_max: int = 0
    where: Sequence[str] = ()
    task_timeout_s: float | None = None
    cpu_bias: float = 0.0
    history: str | Path | None = field(default_factory=history_path)
    rates: Calibration | None = None

    def check(self) -> None:
        """`InvalidRequest` or `UnknownEngine` for what cannot be."""
        for field_name in ("engines", "off", "where"):
            value = getattr(self, field_name)
            if isinstance(value, str):  # A text is a sequence, too: of its letters.
                raise InvalidRequest(field_name, value, f"a list, such as [{value!r}]")
        for name in self.engines:
            engine_of(name)
        for text in self.where:
            constraints.parse("where", text)
        Switches.all_but(self.off)
        if self.threads is not None and self.threads < 1:
            raise InvalidRequest("threads", self.threads, "a whole number from 1")
        if self.memory_bytes_max < 0:
            raise InvalidRequest("memory_bytes_max", self.memory_bytes_max, "a whole number from 0")
        if self.task_timeout_s is not None and not self.task_timeout_s > 0:
            raise InvalidRequest("task_timeout_s", self.task_timeout_s, "a number above 0")
        if self.store_bytes_max is not None and self.store_bytes_max < 1:
            raise InvalidRequest("store_bytes_max", self.store_bytes_max, "a whole number from 1")


def allowed(engines: Mapping[str, bool], wanted: Sequence[str], rules: Rules) -> dict[str, bool]:
    """Those of the engines that are wanted, for which we write scripts, and that take jobs under these rules;
    `NoEngines` if there are none."""
    known = all_engines()
    for name in wanted:
        if name in known and (reason := known[name].barred(rules)) is not None:
            raise NoEngines(reason)
    found = {
        name: warm
        for name, warm in engines.items()
        if name in known and (not wanted or name in wanted) and known[name].barred(rules) is None
    }
    missing = [name for name in wanted if name not in engines]
    if missing or not found:
        one = engine_of(missing[0]) if missing else None
        install = (
            f": {EngineMissing(one.name, one.packages, one.extra, one.missing_program())}" if one is not None else ""
        )
        raise NoEngines(f"no node has the engine {', '.join(missing) or 'of any workflow'}{install}")
    return found
