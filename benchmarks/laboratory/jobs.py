"""The jobs of users in the laboratory: what is submitted, how, and what their tasks are to do."""

from __future__ import annotations

from enum import StrEnum

import msgspec

GPUS = 1
"""Of each node: what tasks with a demand take one of."""
LARGE_BYTES = 150_000
"""Of a result that goes by reference."""


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task. fails: how many of its first starts fail. inputs: (stage, task), or (stage, -1) for all of a stage.
    children: tasks of its own that it waits for."""

    duration_s: float
    fails: int = 0
    result_bytes: int = 0
    inputs: tuple[tuple[str, int], ...] = ()
    preferred: tuple[str, ...] = ()
    children: int = 0


class Stage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks that may run in parallel, once the stages that are named have ended."""

    tasks: tuple[Task, ...]
    name: str = ""
    after: tuple[str, ...] = ()


class Cancel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cancellation. after_s: since the submission. tasks: none for the whole job."""

    after_s: float
    running: bool
    tasks: tuple[int, ...] = ()


class Way(StrEnum):
    """How a job is submitted."""

    CALLS = "calls"
    SUBMIT = "submit"
    MAP = "map"
    STAGES = "stages"
    COMMAND = "command"
    HTTP = "http"
    BUILT_IN = "built-in"


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job. name: of its kind and unique in the round. The others are as in `CallOptions`.

    input_bytes: of each task's arguments. dies_after, stops_after: its client's program is killed or stopped by itself
    when it has sent so many messages with tasks. gate: a file for which its tasks wait instead of sleeping; the first
    task runs out of memory instead, once there is a file of that name with `.bomb` behind it. app: that of a Python
    executor that was started by hand.
    """

    name: str
    user: str
    way: Way
    at_s: float
    stages: tuple[Stage, ...]
    max_attempts: int = 3
    prefetch: int = 0
    retry_failed: bool = False
    task_timeout_s: float | None = None
    expected_duration_s: float | None = None
    speculate: bool = False
    zone: str = ""
    gpu: bool = False
    delay_s: float | None = None
    capture_output: bool = False
    on_client_lost: str = "cancel"
    input_bytes: int = 0
    cancel: Cancel | None = None
    dies_after: int | None = None
    stops_after: int | None = None
    gate: str = ""
    app: str = ""
    probe_ratio: float | None = None

    @property
    def tasks(self) -> list[Task]:
        """Of all stages, in their order."""
        return [task for stage in self.stages for task in stage.tasks]
