"""Jobs of Python calls: how calls are run (`CallOptions`), stages of calls (`CallStage`), and the `JobSpec` of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from sparrow_py import calls
from sparrow_py.errors import InvalidRequest, shown
from sparrow_py.job import (
    GIVEN_MAX,
    MAX_ATTEMPTS_DEFAULT,
    PROBE_RATIO_DEFAULT,
    BlobRef,
    InputName,
    JobSpec,
    RetryPolicy,
    StageSpec,
    TaskResult,
    TaskSpec,
    check_name,
    check_whole,
    sequence,
)
from sparrow_py.local_modules import LocalModule, PackedModule, packed_modules
from sparrow_py.speculation import Speculation, check_job

T = TypeVar("T")
Uploaded = tuple[PackedModule, ...]
"""Modules that a client ships with all its calls."""

_STAGE_FIELDS = (
    "probe_ratio", "prefetch", "expected_duration_s", "demand", "where", "delay_s", "task_timeout_s", "gang",
    "max_per_node", "max_per_rack", "together_with", "lease_s",
)  # fmt: skip
_JOB_FIELDS = (
    "max_attempts", "retry_failed", "queue_timeout_s", "wait_for_nodes_s", "avoid", "on_client_lost", "report_placed",
    "priority", "avoid_by", "policy", "preemptible",
)  # fmt: skip
_WHOLE_JOB = (*_JOB_FIELDS, "speculate")
"""Fields that a stage cannot have for itself."""

MAP_WINDOW_DEFAULT = 20_000
"""Tasks of a `map` in flight at a time."""
MAP_JOB_TASKS = 5_000
"""Tasks that a `map` submits as one job."""
RETRY_ON_MAX = 100
"""Exception classes in `CallOptions.retry_on`."""
PACKED_KEPT_MAX = 8
"""Options whose modules are kept packed; they may take memory."""
OPTIONS_KEPT_MAX = 64
"""Options whose fields are kept at hand once they were found valid; beyond it all are checked anew."""


@dataclass(frozen=True)
class CallOptions:
    """How calls of Python functions are run; the fields are those of `StageSpec` and `JobSpec`.

    capture_output: return what the calls print, in `Future.report`.
    speculate: submit calls that take too long again, and take the outcome that comes first (§3.4). Only for calls
        that may run twice, even at the same time. Tasks of one stage are compared with each other; of `submit`, calls
        that travel as one job.
    retry_on: classes of exceptions after which a call runs again, later; of a `map` with `chunksize` all calls of its
        task do. Other exceptions are the call's outcome at once.
    retry: how often, and after which delays; None: as `RetryPolicy()` says. Only with `retry_on`.
    modules: local modules and packages that the calls can import although workers do not have them: modules, paths of
        `.py` files and of packages, and `LocalModule`s. They travel as they are when these options are first used.
    """

    probe_ratio: float = PROBE_RATIO_DEFAULT
    prefetch: int = 0
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    retry_failed: bool = False
    queue_timeout_s: float | None = None
    expected_duration_s: float | None = None
    demand: Mapping[str, float] | None = None
    where: Sequence[str] = ()
    delay_s: float | None = None
    task_timeout_s: float | None = None
    wait_for_nodes_s: float | None = None
    avoid: Sequence[str] = ()
    on_client_lost: str = "cancel"
    capture_output: bool = False
    report_placed: bool = False
    speculate: Speculation | None = None
    priority: int | None = None
    avoid_by: str = ""
    policy: str = ""
    preemptible: bool = False
    gang: bool = False
    max_per_node: int | None = None
    max_per_rack: int | None = None
    together_with: str = ""
    lease_s: float | None = None
    retry_on: Sequence[type[BaseException]] = ()
    retry: RetryPolicy | None = None
    modules: Sequence[LocalModule | PackedModule | ModuleType | str | os.PathLike[str]] = ()

    def job(self, name: str, common: bytes, payloads: Sequence[bytes | TaskSpec]) -> JobSpec:
        """The job of these calls."""
        self._check_may_retry(self.retry_on)
        fields = _fields_kept(self) or {**self._stage_fields(), **self._job_fields()}
        return JobSpec(payloads, name=name, common=common, **fields)

    def check_calls(self, spec: JobSpec) -> None:
        """Raise `InvalidRequest` if a job of these options, in which all but the options is right, cannot be submitted.

        That is found out once for an options object, unless it refers to something that may change.
        """
        if _fields_kept(self) is not None:
            return
        check_job(spec, self.speculate)
        if self.demand is None and all([type(one) is tuple for one in (self.where, self.avoid, self.retry_on)]):
            if len(_kept) >= OPTIONS_KEPT_MAX:
                _kept.clear()
            _kept[id(self)] = self, {**self._stage_fields(), **self._job_fields()}

    def _check_may_retry(self, retry_on: Sequence[type[BaseException]], of_stage: str = "") -> None:
        """Raise `InvalidRequest` if calls of a job of these options cannot run again after such exceptions."""
        if not retry_on:
            return
        why_not = ""
        if self.max_attempts == 1:
            why_not = "max_attempts=1, which allows no second start"
        elif self.speculate is not None:
            why_not = "speculate, which has to know what runs"
        if why_not:
            raise InvalidRequest(f"retry_on{of_stage}", retry_on, f"() with {why_not}")

    def _stage_fields(self) -> dict[str, Any]:
        own = {field: getattr(self, field) for field in _STAGE_FIELDS}
        retry = (self.retry or RetryPolicy()) if self.retry_on else None
        return {"app": calls.APP, "runtime": calls.RUNTIME, "retry": retry, **own}

    def _job_fields(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in _JOB_FIELDS}

    def stages_job(self, name: str, stages: Iterable[CallStage], uploaded: Uploaded = ()) -> JobSpec:
        """The job of these stages of calls; raises `InvalidRequest`, or what pickling raises."""
        stages = _listed("stages", stages, "a list of CallStages")
        for index, stage in enumerate(stages):
            if not isinstance(stage, CallStage):
                raise InvalidRequest(f"stages[{index}]", stage, "a CallStage")
            self._check_stage(stage)
        sizes = {stage.name: len(stage.arguments) for stage in stages}
        return JobSpec(
            stages=[self._stage(stage, sizes, uploaded) for stage in stages], name=name, **self._job_fields()
        )

    def _check_stage(self, stage: CallStage) -> None:
        """Raise `InvalidRequest` if the stage's options ask for what only a whole job can have, and this one has not.

        Defaults are nobody's wish: who makes options for the sake of one field states no other.
        """
        if stage.options is None or stage.options is self:
            return
        for field in _WHOLE_JOB:
            value, of_job = getattr(stage.options, field), getattr(self, field)
            if not _is_one_of(value, (of_job, getattr(CallOptions, field))):
                allowed = (
                    f"the job's {shown(of_job)}: {field} is of the whole job, to be given to the client or as options "
                    "to submit_stages"
                )
                raise InvalidRequest(f"{field} in the options of stage {stage.name!r}", value, allowed)

    def _stage(self, stage: CallStage, sizes: dict[str, int], uploaded: Uploaded) -> StageSpec:
        options = stage.options or self
        after = dict.fromkeys(stage.after)

        def task_count(name: str) -> int:
            if name not in sizes:
                known = ", ".join(sizes)
                raise InvalidRequest(f"arguments of stage {stage.name!r}", name, f"results of stages {known}")
            after[name] = None
            return sizes[name]

        tasks: list[bytes | TaskSpec] = []
        for index, arguments in enumerate(stage.arguments):
            named = f"stage {stage.name!r}: arguments[{index}]"
            task = calls.encode_call(arguments, {}, task_count, named=named)
            asked = task.inputs if isinstance(task, TaskSpec) else ()
            after.update(dict.fromkeys(source for name in asked if (source := _stage_named(name))))
            tasks.append(task)
        for number, preferred in stage.preferred.items():
            known_task = tasks[number]
            spec = known_task if isinstance(known_task, TaskSpec) else TaskSpec(known_task)
            spec.preferred = preferred
            tasks[number] = spec
        for number, data in stage.data.items():
            known_task = tasks[number]
            spec = known_task if isinstance(known_task, TaskSpec) else TaskSpec(known_task)
            spec.data, spec.data_bytes = data, stage.data_bytes.get(number)
            tasks[number] = spec
        of_stage = f" of stage {stage.name!r}"
        common = encoded_function(options, stage.function, name=stage.name, of_stage=of_stage, uploaded=uploaded)
        self._check_may_retry(options.retry_on, of_stage)
        fields = options._stage_fields()
        return StageSpec(tasks, name=stage.name, after=list(after), common=common, priority=stage.priority, **fields)


def _stage_named(name: InputName) -> str:
    """The stage whose results a task asks for; none for what comes from elsewhere."""
    if isinstance(name, BlobRef | TaskResult):
        return ""
    return name if isinstance(name, str) else name[0]


_kept: dict[int, tuple[CallOptions, dict[str, Any]]] = {}
"""Options that were found valid, by their id, with their jobs' fields. While they are here, no others have that id."""


def _fields_kept(options: CallOptions) -> dict[str, Any] | None:
    """The fields of jobs of these very options, if they are known to be valid."""
    kept = _kept.get(id(options))
    return kept[1] if kept is not None else None


class CallStage:
    """A stage of a job of Python calls: `function(*arguments)` for each tuple of arguments.

    `InvalidRequest` if a field has a value that is not allowed.

    name: for people, and for other stages' `ResultOf` and `after`; unique in its job.
    function: what is called.
    arguments: a tuple for each task. A `ResultOf` anywhere in them stands for results of another stage, after which
        this one then comes.
    after: names of further stages that have to finish before this one begins.
    preferred: of tasks, by number, the ids of the nodes that have their input (`TaskSpec.preferred`).
    data: of tasks, by number, how many bytes of what they read lie on each node (`TaskSpec.data`).
    data_bytes: of tasks, by number, how many bytes these are parts of (`TaskSpec.data_bytes`).
    priority: among the job's stages; at most the job's. None: the job's.
    options: in place of the job's, but for the fields that are of the whole job: each of these is the default or the
        job's, or `submit_stages` refuses the stage.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Iterable[tuple[Any, ...]] = ((),),
        *,
        after: Sequence[str] = (),
        preferred: Mapping[int, Sequence[str]] | None = None,
        options: CallOptions | None = None,
        data: Mapping[int, Mapping[str, int]] | None = None,
        priority: int | None = None,
        data_bytes: Mapping[int, int] | None = None,
    ) -> None:
        check_function(function, f" of stage {name!r}")
        self.name = name
        self.function = function
        self.arguments = _listed(f"arguments of stage {name!r}", arguments, "a list of tuples, one for each task")
        for index, given in enumerate(self.arguments):
            if not isinstance(given, tuple):
                raise InvalidRequest(f"arguments[{index}] of stage {name!r}", given, "a tuple of arguments")
        self.after = after
        self.preferred = preferred or {}
        self.data = data or {}
        self.data_bytes = data_bytes or {}
        mappings = (
            ("preferred", self.preferred, "nodes"),
            ("data", self.data, "bytes by node"),
            ("data_bytes", self.data_bytes, "bytes"),
        )
        for field, value, of_what in mappings:
            if not isinstance(value, Mapping):
                raise InvalidRequest(f"{field} of stage {name!r}", value, f"a mapping of task numbers to {of_what}")
            for task in value:
                check_whole(f"{field} of stage {name!r}", task, 0, len(self.arguments) - 1)
        self.priority = priority
        if options is not None and not isinstance(options, CallOptions):
            raise InvalidRequest(f"options of stage {name!r}", options, "CallOptions")
        self.options = options


def calls_job(
    options: CallOptions,
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    name: str,
    uploaded: Uploaded = (),
) -> JobSpec:
    """A job with a task `function(*args)` for each tuple (or list) of arguments; `InvalidRequest` for what is none."""
    common = encoded_function(options, function, name=name, uploaded=uploaded)
    payloads = argument_payloads(arguments)
    return options.job(name or calls.function_name(function), common, payloads)


class MapJobs:
    """The jobs of a `map`: calls of `function` over the iterables, `chunksize` of them in a task, at most about
    `window` of them in flight. `InvalidRequest` for numbers that cannot be; pickling errors are raised."""

    def __init__(
        self,
        function: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        options: CallOptions,
        chunksize: int,
        window: int,
        uploaded: Uploaded = (),
    ) -> None:
        check_whole("chunksize", chunksize, 1, 1 << 20)
        check_whole("window", window, 1, 1 << 24)
        self.in_flight_max = max(1, window // chunksize)
        """Tasks."""
        self._common = encoded_function(options, function, chunked=True, uploaded=uploaded)
        self.name = calls.function_name(function)
        self._options = options
        self._chunks: Iterator[bytes | TaskSpec] = calls.encode_chunks(iterables, chunksize)

    def next(self, in_flight: int) -> JobSpec | None:
        """The next, while so many tasks are in flight; None if there are no more calls."""
        payloads: list[bytes | TaskSpec] = []
        inputs = 0
        for payload in itertools.islice(self._chunks, min(MAP_JOB_TASKS, self.in_flight_max - in_flight)):
            inputs += inputs_of(payload)
            if payloads and inputs > GIVEN_MAX:  # It is for the next one.
                self._chunks = itertools.chain([payload], self._chunks)
                break
            payloads.append(payload)
        return self._options.job(self.name, self._common, payloads) if payloads else None


def inputs_of(task: bytes | TaskSpec) -> int:
    """How many inputs the task of a call asks for."""
    return len(task.inputs) if isinstance(task, TaskSpec) else 0


def checked_options(options: CallOptions | None, otherwise: CallOptions | None = None) -> CallOptions:
    """These options, or `otherwise`, or the default ones; `InvalidRequest` for anything else."""
    if options is not None and not isinstance(options, CallOptions):
        raise InvalidRequest("options", options, "CallOptions")
    return options or otherwise or CallOptions()


def check_function(function: object, of_stage: str = "") -> None:
    """Raise `InvalidRequest` for what cannot be called."""
    if not callable(function):
        raise InvalidRequest(f"function{of_stage}", function, "something that can be called")


def encoded_function(
    options: CallOptions,
    function: Callable[..., Any],
    *,
    name: str = "",
    chunked: bool = False,
    of_stage: str = "",
    uploaded: Uploaded = (),
) -> bytes:
    """The common bytes of calls of the function with these options, and the modules that their client ships with all
    calls; `InvalidRequest`, or what pickling raises.

    What these bytes say is checked here, as nobody on the way to the worker reads them.
    """
    check_function(function, of_stage)
    if name != "":
        check_name(f"name{of_stage}", name)
    if not isinstance(options.capture_output, bool):
        raise InvalidRequest(f"capture_output{of_stage}", options.capture_output, "True or False")
    if options.retry_on != () or options.retry is not None:
        _check_retry_on(options, of_stage)
    return calls.encode_function(
        function,
        name=name,
        capture_output=options.capture_output,
        chunked=chunked,
        retry_on=tuple(options.retry_on),
        modules=_modules_of(options, of_stage, uploaded),
    )


_packed: dict[int, tuple[CallOptions, tuple[PackedModule, ...]]] = {}
"""The modules of options, packed once, by the options' id. While they are here, no others have that id."""


def _modules_of(options: CallOptions, of_stage: str, uploaded: Uploaded) -> Uploaded:
    """The modules of calls with these options: their own, and those uploaded before whose names are none of them."""
    if options.modules == ():
        return uploaded
    packed = _packed.get(id(options))
    if packed is None:
        modules = packed_modules(f"modules{of_stage}", options.modules)
        if len(_packed) >= PACKED_KEPT_MAX:
            _packed.clear()
        packed = _packed[id(options)] = options, modules
    own = packed[1]
    if not uploaded:
        return own
    names = {one.name for one in own}
    return packed_modules(f"modules{of_stage}", [*(one for one in uploaded if one.name not in names), *own])


def with_module(uploaded: Uploaded, path: ModuleType | str | os.PathLike[str], *, replaces_installed: bool) -> Uploaded:
    """These modules, and this one as its files are now, in place of one of the same name. `InvalidRequest` for what
    cannot travel."""
    packed = LocalModule(path, replaces_installed).packed("path")
    return packed_modules("path", [*(one for one in uploaded if one.name != packed.name), packed])


def _check_retry_on(options: CallOptions, of_stage: str) -> None:
    """Raise `InvalidRequest` unless these are classes of exceptions, some at least if there is a policy for them."""
    if isinstance(options.retry_on, type):
        allowed = f"a tuple of exception classes, of one as in ({options.retry_on.__name__},)"
        raise InvalidRequest(f"retry_on{of_stage}", options.retry_on, allowed)
    classes = sequence(f"retry_on{of_stage}", options.retry_on)
    if len(classes) > RETRY_ON_MAX:
        raise InvalidRequest(f"retry_on{of_stage}", f"{len(classes)} classes", f"at most {RETRY_ON_MAX}")
    for index, one in enumerate(classes):
        if not isinstance(one, type) or not issubclass(one, BaseException):
            raise InvalidRequest(f"retry_on[{index}]{of_stage}", one, "a class of exceptions, as TimeoutError is")
    if options.retry is not None and not isinstance(options.retry, RetryPolicy):
        raise InvalidRequest(f"retry{of_stage}", options.retry, "a RetryPolicy, or None")
    if not classes and options.retry is not None:
        allowed = "None without retry_on, which says after which exceptions calls run again"
        raise InvalidRequest(f"retry{of_stage}", options.retry, allowed)


def argument_payloads(arguments: Iterable[tuple[Any, ...]]) -> list[bytes | TaskSpec]:
    """The task of a call for each tuple of arguments; a list will do, too.

    `InvalidRequest` for anything else: a lone string would be an argument for each of its characters.
    """
    payloads = []
    for index, args in enumerate(_iterated("arguments", arguments, "a list of tuples, one for each task")):
        if not isinstance(args, tuple | list):
            raise InvalidRequest(f"arguments[{index}]", args, "a tuple of arguments, of one as in (1,)")
        payloads.append(calls.encode_arguments(tuple(args), {}, named=f"arguments[{index}]"))
    return payloads


def _listed(field: str, value: Iterable[T], allowed: str) -> list[T]:
    return list(_iterated(field, value, allowed))


def _iterated(field: str, value: Iterable[T], allowed: str) -> Iterator[T]:
    """Its items; `InvalidRequest` for what has none. Errors of the caller's own iteration stay what they are."""
    try:
        return iter(value)
    except TypeError:
        raise InvalidRequest(field, value, allowed) from None


def _is_one_of(value: object, known: Iterable[object]) -> bool:
    """Whether it is equal to one of these; lists and tuples are the same here."""
    plain = tuple(value) if isinstance(value, list) else value
    return any(plain == (tuple(other) if isinstance(other, list) else other) for other in known)
