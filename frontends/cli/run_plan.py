"""What `sparrow run` is to run: a task for each input, and the job of these tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from frontends.cli.run_inputs import inputs_of, lines_of_standard_input
from frontends.command import joblog
from frontends.command.sources import Source, split_command
from frontends.command.tasks import CommandTask, command_job
from frontends.command.templates import Template
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import JobSpec

INDEX_VARIABLE = "SPARROW_ARRAY_INDEX"
SLOT_SHOWN = "{%}"
"""What stands for the number of a task's place where the place is not known."""
JOB_FIELDS = (
    "prefetch", "probe_ratio", "priority", "expected_duration_s", "preemptible", "gang", "max_per_node", "max_per_rack",
    "where",
)  # fmt: skip
"""Options that are fields of `JobSpec`."""
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_duration = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", re.ASCII)


@dataclass(slots=True)
class Plan:
    """The tasks that are to run: of each the number of its input, from 1, and the input's values for people."""

    name: str
    numbers: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    tasks: list[CommandTask] = field(default_factory=list)


def plan_of(words: Sequence[str], options: Mapping[str, Any], logged: Mapping[int, joblog.Entry]) -> Plan:
    """The plan for this command, with sources after it, or else for `array` or the lines of standard input.

    Inputs that are `logged` are left out. `InvalidRequest` if one of them was logged with another command, or is none.
    """
    argv, sources = split_command(words)
    if not argv:
        raise click.UsageError(f"COMMAND is missing before {words[0]}")
    array: int | None = options["array"]
    check_inputs(sources, array=array, null=options["null"])
    make = Template.of_script if options["shell"] else Template.of_arguments
    template = make(argv, max(1, len(sources)), append=array is None)
    env = variables_of(options["variables"])
    cwd = os.path.abspath(options["workdir"] or ".")  # noqa: PTH100 - Path.resolve would follow links
    plan = Plan(options["name"] or name_of(argv))
    number = 0
    for number, values in enumerate(_inputs(sources, array, null=options["null"]), 1):
        filled = template.filled(number, values)
        variables = env if array is None else {**env, INDEX_VARIABLE: values[0]}
        task = CommandTask(filled.argv, env=variables, cwd=cwd, slot_at=filled.slot_at)
        if (entry := logged.get(number)) is not None:
            check_logged(entry, task)
            continue
        plan.numbers.append(number)
        plan.labels.append(" ".join(values))
        plan.tasks.append(task)
    if (last := max(logged, default=0)) > number:
        raise InvalidRequest(
            "joblog", f"Seq {last}", f"the log of this command with these inputs, of which are {number}"
        )
    return plan


def check_inputs(sources: Sequence[Source], *, array: int | None, null: bool) -> None:
    """Raise `UsageError` for options that contradict the sources of values."""
    if sources and array is not None:
        raise click.UsageError("--array has its own inputs; it cannot be given together with ::: or ::::")
    if null and (array is not None or (sources and all(source.file is None for source in sources))):
        raise click.UsageError("--null is for what is read: standard input, or files after ::::")


def _inputs(sources: Sequence[Source], array: int | None, *, null: bool) -> Iterable[tuple[str, ...]]:
    if array is not None:
        return _single(map(str, range(array)))
    return inputs_of(sources, null=null) if sources else _single(lines_of_standard_input(null=null))


def _single(values: Iterable[str]) -> Iterator[tuple[str, ...]]:
    return ((value,) for value in values)


def check_logged(entry: joblog.Entry, task: CommandTask) -> None:
    """Raise `InvalidRequest` unless the entry is of this task's command."""
    argv = shown(task)
    if not joblog.is_command(entry.command, argv):
        raise InvalidRequest(
            f"joblog: Command of Seq {entry.number}",
            entry.command[: joblog.SHOWN_CHARS],
            f"the log of this command with these inputs, here {joblog.written(argv)[: joblog.SHOWN_CHARS]}",
        )


def shown(task: CommandTask) -> list[str]:
    """The task's command for people and logs."""
    return task.in_place(SLOT_SHOWN).argv


def job_of(plan: Plan, options: Mapping[str, Any]) -> JobSpec:
    """The job of these tasks; `InvalidRequest` for what cannot be."""
    retries: int | None = options["retries"]
    timeout: str | None = options["timeout"]
    job = command_job(
        plan.tasks,
        name=plan.name,
        policy=options["policy"] or "",
        demand=demand_of(options["demands"]) or None,
        task_timeout_s=options["task_timeout_s"] if timeout is None else seconds_of(timeout),
        max_attempts=options["max_attempts"] if retries is None else retries,
        retry_failed=retries is not None and retries > 1,
        **{name: options[name] for name in JOB_FIELDS},
    )
    job.validate()
    return job


def name_of(argv: Sequence[str]) -> str:
    """A name for the job: that of the command, if it can be one."""
    name = os.path.basename(argv[0])  # noqa: PTH119 - an argument, not a path of ours
    return name if name.isprintable() and len(name.encode("utf-8", "replace")) <= 64 else ""


def variables_of(settings: Sequence[str]) -> dict[str, str]:
    """The variables that the settings name: `NAME=VALUE`, or `NAME` with its value in this process."""
    variables = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not (equals or name in os.environ):
            raise InvalidRequest("env", setting, "NAME=VALUE, or the NAME of a variable that is set here")
        variables[name] = value if equals else os.environ[name]
    return variables


def demand_of(settings: Sequence[str]) -> dict[str, float]:
    """Amounts by resource: `NAME=AMOUNT` each."""
    demand: dict[str, float] = {}
    for setting in settings:
        name, _, amount = setting.partition("=")
        try:
            demand[name] = float(amount)
        except ValueError:
            raise InvalidRequest("demand", setting, "NAME=AMOUNT, a number above 0") from None
    return demand


def seconds_of(duration: str) -> float:
    """The seconds of a duration such as 10, 1.5m, 2h."""
    found = _duration.fullmatch(duration)
    if found is None or not float(found[1]):
        raise InvalidRequest("timeout", duration, "seconds above 0, or a number with s, m, h or d after it: 10, 1.5m")
    return float(found[1]) * SECONDS[found[2]]
