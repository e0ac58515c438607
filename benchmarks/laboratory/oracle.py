"""What must hold, as the guarantees say, whatever was done to a cluster.

Each check is a function from the evidence to what violates it. They know nothing of how the product works, but of how
its words are meant (docs/reliability.md, "What these words mean"); each says which words it holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise

from benchmarks.laboratory import work
from benchmarks.laboratory.evidence import Evidence, Program, Run
from benchmarks.laboratory.faults import OF_NODES, OF_SCHEDULERS, OF_WORKERS, STANDSTILLS, Happened, Kind
from benchmarks.laboratory.jobs import GPUS, Job, Stage, Way
from benchmarks.laboratory.told import Event, Told
from simulator.soak import guarantees

COMMAND_STEP_NS = 10_000_000
"""Of the clock that commands have."""
TIMED_OUT = 0.9
"""Of its time: a task that has not run for so long was not stopped for that."""
SHOWN_MAX = 5
"""Violations of one check."""
FINISHED, FAILED, CANCELLED, LOST = "finished", "failed", "cancelled", "lost"
SHELL = (Way.COMMAND, Way.HTTP)
UNSEEN = (Way.BUILT_IN,)
"""Ways whose tasks write nothing down."""
Check = Callable[[Evidence], Iterator[str]]


def judge(found: Evidence, without: Collection[Check] = ()) -> Iterator[str]:
    """All that is violated; of one check only the first few, and how many there are. without: checks left out."""
    for check in CHECKS:
        if check in without:
            continue
        violations = list(check(found))
        name = check.__name__.replace("_", " ")
        yield from (f"{name}: {what}" for what in violations[:SHOWN_MAX])
        if len(violations) > SHOWN_MAX:
            yield f"{name}: {len(violations) - SHOWN_MAX} more"


# ---- what explains what ----------------------------------------------------------------------


def disturbances(found: Evidence, before_ns: int, kinds: Iterable[Kind] = ()) -> list[Happened]:
    """What was done before that moment to those who had tasks, of these kinds or any."""
    allowed = tuple(kinds) or (*OF_SCHEDULERS, *OF_NODES, *OF_WORKERS)
    return [one for one in found.happened if one.kind in allowed and one.at_ns < before_ns]


def hits(found: Evidence, line: Told | Run, before_ns: int) -> list[Happened]:
    """What was done before that moment to those who had this task: schedulers, and the nodes where it was started; or
    its client, which was cut off and took it elsewhere.

    Of a task that was nowhere started, or failed there by itself, any node may have been the one to have it.
    """
    runs = [run for run in found.runs_of.get((line.job, line.task), ()) if run.start_ns < before_ns]
    job = found.jobs[line.job]
    nodes = {run.node for run in runs}
    anywhere = not runs or job.way in UNSEEN or (job.retry_failed and job.tasks[line.task].fails > 0)
    cuts = disturbances(found, before_ns, (Kind.ISOLATE_CLIENT,))
    return [one for one in cuts if one.target == found.program_of.get(line.job)] + [
        one
        for one in disturbances(found, before_ns)
        if anywhere or one.target in nodes or (one.kind in OF_SCHEDULERS and one.target not in found.slots)
    ]


def kills_by_itself(job: Job) -> bool:
    """Whether workers are killed for tasks of this job: for a time-out, a cancellation, or a copy that was quicker."""
    return job.task_timeout_s is not None or job.speculate or (job.cancel is not None and job.cancel.running)


def dies_with_others(found: Evidence, job: Job) -> bool:
    """Under prefetch a worker is given tasks ahead of time, which count as started if it is killed for another."""
    return job.prefetch > 0 and any(map(kills_by_itself, found.jobs.values()))


def starts_allowed(job: Job) -> int:
    """How often a task may be started; with `speculate` a copy of it may be, too."""
    return job.max_attempts * (2 if job.speculate else 1)


def is_countable(found: Evidence, name: str) -> bool:
    """Whether anybody can count the starts: not of a job that goes on without its client (`on_client_lost="finish"`),
    which moves it all the same since it or the scheduler was only cut off. Unless it may start once."""
    job = found.jobs[name]
    if job.on_client_lost != "finish" or job.max_attempts == 1:
        return True
    cuts = disturbances(found, 1 << 63, (Kind.ISOLATE_SCHEDULER, Kind.ISOLATE_CLIENT))
    return not any(one.kind is Kind.ISOLATE_SCHEDULER or one.target == found.program_of.get(name) for one in cuts)


# ---- guarantee 1: an accepted job ends -------------------------------------------------------


def every_job_ends(found: Evidence) -> Iterator[str]:
    """Every task is reported, with a reason if it did not finish."""
    for program in found.programs:
        if not program.over:
            continue
        silent = {line.job for line in program.lines if line.event in (Event.REFUSED, Event.GONE)}
        silent |= {line.job for line in program.lines if line.event is Event.MAPPED and line.error}
        told = _told_of(program)
        for name in {line.job for line in program.lines if line.event is Event.SUBMITTED} - silent:
            if problem := guarantees.no_outcome(len(found.jobs[name].tasks), told[name]):
                yield f"{name}: {problem}"


def _told_of(program: Program) -> dict[str, list[int]]:
    """The tasks whose outcomes a program was told, by job."""
    told: dict[str, list[int]] = defaultdict(list)
    for line in program.lines:
        if line.event in (Event.OUTCOME, Event.MAPPED):
            told[line.job].append(line.task)
    return told


def every_end_has_a_reason(found: Evidence) -> Iterator[str]:
    """Guarantee 1, "with a reason"."""
    for line in found.told(Event.OUTCOME):
        if line.status not in (FINISHED, FAILED, CANCELLED, LOST):
            yield f"{line.job} task {line.task} ended {line.status!r}"
        elif line.status != FINISHED and not line.error:
            yield f"{line.job} task {line.task} is {line.status} without a reason"


def no_job_is_refused(found: Evidence) -> Iterator[str]:
    """No limit is near, and before the client's patience ends there are a node for large inputs and a scheduler."""
    for line in found.told(Event.REFUSED):
        yield f"{line.job}: {line.error}"


def http_jobs_end_with_their_scheduler_only(found: Evidence) -> Iterator[str]:
    """docs/http.md: results are kept until well after the job's end, as long as the scheduler lives."""
    for line in found.told(Event.GONE):
        if not disturbances(found, line.at_ns, OF_SCHEDULERS):
            yield f"{line.job} is gone: {line.error}"


# ---- guarantee 2: one outcome, and the right one ---------------------------------------------


def outcomes_are_told_once(found: Evidence) -> Iterator[str]:
    """Guarantee 2."""
    for program in found.programs:
        for name, tasks in _told_of(program).items():
            if problem := guarantees.told_twice(tasks):
                yield f"{name}: {problem}"
        yield from (f"{line.job}: {line.error}" for line in program.lines if line.event is Event.TWICE)


def expected_marks(name: str, job: Job) -> list[object]:
    """Of the values of a job's tasks."""
    firsts: dict[str, int] = {}
    marks: list[object] = []
    for stage in job.stages:
        firsts[stage.name] = len(marks)
        sizes = {one.name: len(one.tasks) for one in job.stages}
        for task in stage.tasks:
            inputs = [
                marks[firsts[source] : firsts[source] + sizes[source]] if number < 0 else marks[firsts[source] + number]
                for source, number in task.inputs
            ]
            marks.append(work.mark(work.value(name, len(marks), inputs, task.result_bytes)))
    return marks


def values_are_right(found: Evidence) -> Iterator[str]:
    """A finished task's value is that of its function, arguments and inputs; what it printed is what it prints."""
    expected = {name: expected_marks(name, job) for name, job in found.jobs.items()}
    for line in found.told(Event.OUTCOME, Event.MAPPED):
        job = found.jobs[line.job]
        finished = line.status in (FINISHED, "") and not line.error
        if not finished or line.result_lost or job.way in UNSEEN:
            continue
        by_reference = line.mark == "" and job.tasks[line.task].result_bytes > 0
        if line.mark != expected[line.job][line.task] and not by_reference:
            yield f"{line.job} task {line.task} is {line.mark}, not {expected[line.job][line.task]}"
        printed = f"{work.said(line.job, line.task)}\n"
        if job.capture_output and line.event is Event.OUTCOME and line.stdout != printed:
            yield f"{line.job} task {line.task} printed {line.stdout!r}, not {printed!r}"


def what_finished_has_ended(found: Evidence) -> Iterator[str]:
    """A task that is told to have finished has come to its end, by its own account."""
    for line in found.told(Event.OUTCOME):
        if line.status == FINISHED and found.jobs[line.job].way not in UNSEEN:
            runs = found.runs_of.get((line.job, line.task), ())
            if all(run.end_ns is None for run in runs):
                yield f"{line.job} task {line.task} finished without an end: {_shown(found, runs)}"


def times_are_of_a_monotonic_clock(found: Evidence) -> Iterator[str]:
    """`TaskReport.service_s` is measured on one monotonic clock: whatever wall clocks do."""
    last_ns = max((line.at_ns for line in found.told(*Event)), default=0)
    first_ns = min((line.at_ns for line in found.told(*Event)), default=0)
    for line in found.told(Event.OUTCOME):
        if line.service_s is not None and not 0 <= line.service_s <= (last_ns - first_ns) / 1e9:
            yield f"{line.job} task {line.task} took {line.service_s} s"


# ---- guarantee 3: starts ---------------------------------------------------------------------


def starts_are_limited(found: Evidence) -> Iterator[str]:
    """Never more than `max_attempts` times in all."""
    for (name, task), runs in found.runs_of.items():
        problem = guarantees.too_many_starts(task, len(runs), starts_allowed(found.jobs[name]))
        if problem and is_countable(found, name):
            yield f"{name}: {problem}: {_shown(found, runs)}"


def attempts_say_the_truth(found: Evidence) -> Iterator[str]:
    """What is reported is no less than the starts that happened until then, and no more than may be."""
    for line in found.told(Event.OUTCOME):
        job = found.jobs[line.job]
        starts = [run for run in found.runs_of.get((line.job, line.task), ()) if run.start_ns < line.at_ns]
        problem = guarantees.untrue_attempts(line.task, line.attempts, job.max_attempts, len(starts))
        if problem and (job.speculate or not is_countable(found, line.job)):
            problem = guarantees.untrue_attempts(line.task, line.attempts, job.max_attempts, 0)
        if problem:
            yield f"{line.job}: {problem}: {_shown(found, starts)}"


def restarts_are_explained(found: Evidence) -> Iterator[str]:
    """A task is started again only if its node, executor or scheduler was lost, or if it failed and may be retried. (No
    job here is preemptible.)"""
    for (name, task), runs in found.runs_of.items():
        job = found.jobs[name]
        if job.speculate or dies_with_others(found, job):
            continue
        for number, run in enumerate(runs[1:], 1):
            failed = job.retry_failed and (number <= job.tasks[task].fails)
            if not failed and not hits(found, run, run.start_ns) and not _late(found, run):
                yield f"{name} task {task} was started again: {_shown(found, runs)}"
                break


def _late(found: Evidence, run: Run) -> bool:
    """Whether its node stood still: it may have had the task before those where it was started meanwhile."""
    return any(one.target == run.node for one in disturbances(found, run.start_ns, STANDSTILLS))


def nothing_starts_after_its_outcome(found: Evidence) -> Iterator[str]:
    """Where nobody was disturbed: what has an outcome is over."""
    for line in found.told(Event.OUTCOME):
        if found.jobs[line.job].speculate:
            continue
        late = [run for run in found.runs_of.get((line.job, line.task), ()) if run.start_ns > line.at_ns]
        if late and not disturbances(found, late[0].start_ns):
            yield f"{line.job} task {line.task} was {line.status} and started later: {_shown(found, late)}"


# ---- guarantee 4: what did not finish, and why -----------------------------------------------


def losses_are_explained(found: Evidence) -> Iterator[str]:
    """No accepted task is lost while attempts remain, nor where nobody died or stood still."""
    for line in found.told(Event.OUTCOME, Event.MAPPED):
        if line.status != LOST:
            continue
        job = found.jobs[line.job]
        if not hits(found, line, line.at_ns) and not dies_with_others(found, job):
            yield f"{line.job}: lost, and nobody who had it was disturbed: task {line.task}, {line.error}"
        elif problem := lost_early(found, line):
            yield f"{line.job}: {problem}"


def lost_early(found: Evidence, line: Told) -> str:
    """What is wrong with a loss while attempts remain; nothing, if its input may have gone with its node."""
    job = found.jobs[line.job]
    by_reference = job.input_bytes or any(task.result_bytes for task in job.tasks)
    if by_reference and disturbances(found, line.at_ns, OF_NODES):
        return ""
    if line.event is not Event.OUTCOME or line.status != LOST:
        return ""
    return guarantees.lost_early(line.task, line.attempts, job.max_attempts, line.error)


def failures_are_explained(found: Evidence) -> Iterator[str]:
    """A task fails by its own doing, and is then started again if its job says so; or it has run for too long."""
    for line in found.told(Event.OUTCOME):
        job = found.jobs[line.job]
        runs = [run for run in found.runs_of.get((line.job, line.task), ()) if run.start_ns < line.at_ns]
        fails = job.tasks[line.task].fails if job.way not in UNSEEN else 0
        if line.status == FINISHED and runs and len(runs) <= fails:
            yield f"{line.job} task {line.task} finished, though it fails {fails} times: {_shown(found, runs)}"
        if line.status != FAILED:
            continue
        if fails and work.PlannedFailure.__name__ in line.error:
            if job.retry_failed and line.attempts < job.max_attempts:
                yield f"{line.job} task {line.task} failed with attempts left: {line.attempts} of {job.max_attempts}"
        elif not _timed_out(job, runs) and not disturbances(found, line.at_ns, (Kind.SHORTAGE,)):
            yield f"{line.job} task {line.task} failed: {line.error[-200:]}"


def _timed_out(job: Job, runs: list[Run]) -> bool:
    """Whether a run lasted for so long. Without any run the worker, which stood still or was forked slowly, was killed
    before the task's function began."""
    if job.task_timeout_s is None:
        return False
    least_ns = TIMED_OUT * job.task_timeout_s * 1e9
    return not runs or any(run.end_ns is None or run.end_ns - run.start_ns > least_ns for run in runs)


def cancellations_are_explained(found: Evidence) -> Iterator[str]:
    """A task is cancelled because its user says so, or because what it comes after did not finish."""
    for program in found.programs:
        asked = {line.job: line.at_ns for line in program.lines if line.event is Event.CANCELLED}
        unfinished = {(line.job, line.task) for line in _outcomes(program) if line.status != FINISHED}
        for line in _outcomes(program):
            if line.status != CANCELLED:
                continue
            job = found.jobs[line.job]
            chosen = job.cancel is not None and (not job.cancel.tasks or line.task in job.cancel.tasks)
            if not (chosen and asked.get(line.job, line.at_ns) < line.at_ns):
                before = _tasks_before(job, line.task)
                if not any((line.job, task) in unfinished for task in before):
                    yield f"{line.job} task {line.task} is cancelled: {line.error}"
            elif job.cancel is not None and not job.cancel.running and not disturbances(found, line.at_ns):
                runs = found.runs_of.get((line.job, line.task))
                if runs:
                    yield f"{line.job} task {line.task} is cancelled, and had started: {_shown(found, runs)}"


def results_are_lost_with_nodes_only(found: Evidence) -> Iterator[str]:
    """A result by reference is lost with its node."""
    for line in found.told(Event.OUTCOME):
        if line.result_lost and not disturbances(found, line.at_ns, OF_NODES):
            yield f"{line.job} task {line.task}: {line.error}"


def jobs_finish_without_their_client(found: Evidence) -> Iterator[str]:
    """`on_client_lost="finish"`: where its scheduler lives and attempts remain, each task comes to its end."""
    if disturbances(found, 1 << 63, OF_SCHEDULERS):
        return
    deaths = len(disturbances(found, 1 << 63))
    for program in found.programs:
        if program.over:
            continue
        for name in {line.job for line in program.lines if line.event is Event.ACCEPTED}:
            job = found.jobs[name]
            plain = job.way is Way.CALLS and not kills_by_itself(job) and not job.cancel and not job.input_bytes
            if job.on_client_lost != "finish" or not plain or job.max_attempts <= deaths:
                continue
            tasks = range(len(job.tasks))
            runs_of = {task: found.runs_of.get((name, task), ()) for task in tasks}
            missing = [task for task in tasks if all(run.end_ns is None for run in runs_of[task])]
            if missing:
                yield f"{name}: tasks {missing[:10]} ({len(missing)}) did not come to their ends"


# ---- guarantee 5: slots, places and order ----------------------------------------------------


def no_node_runs_more_than_its_slots(found: Evidence) -> Iterator[str]:
    """A slot never runs two tasks that do not wait for tasks of their own."""
    by_host: dict[str, list[Run]] = defaultdict(list)
    for run in found.runs:
        by_host[run.host].append(run)
    for host, runs in by_host.items():
        slots = found.slots[runs[0].node]
        if (most := _most_at_a_time(found, runs)) > slots:
            yield f"{host} ran {most} tasks at a time in {slots} slots"
        demanding = [run for run in runs if found.jobs[run.job].gpu]
        if (most := _most_at_a_time(found, demanding)) > GPUS:
            yield f"{host} ran {most} tasks at a time that each take its only gpu"


def _most_at_a_time(found: Evidence, runs: Iterable[Run]) -> int:
    """Of those that came to their ends; when the others did nobody has written down."""
    moments: list[tuple[int, int]] = []
    for run in runs:
        start_ns = run.start_ns + (COMMAND_STEP_NS if found.jobs[run.job].way in SHELL else 0)
        if run.end_ns is not None and start_ns < run.end_ns:
            moments += [(start_ns, 1), (run.end_ns, -1)]
            if run.waited_ns is not None:
                moments += [(run.waited_ns[0], -1), (run.waited_ns[1], 1)]
    most = running = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


def workers_run_one_task_at_a_time(found: Evidence) -> Iterator[str]:
    """The same, in one process."""
    for (host, pid), runs in _by_worker(found).items():
        for first, second in pairwise(runs):
            if first.end_ns is None or first.end_ns > second.start_ns:
                yield f"worker {pid} of {host}: {_shown(found, [first, second])}"


def workers_belong_to_one_user(found: Evidence) -> Iterator[str]:
    """A process that ran a user's code runs no other user's."""
    users_of = {worker: {found.jobs[run.job].user for run in runs} for worker, runs in _by_worker(found).items()}
    shared = {worker: users for worker, users in users_of.items() if len(users) > 1}
    for (host, pid), users in list(shared.items())[:1]:
        yield f"{len(shared)} of {len(users_of)} workers are shared; {pid} of {host} by {', '.join(sorted(users))}"


def _by_worker(found: Evidence) -> dict[tuple[str, int], list[Run]]:
    """Of Python tasks, in the order of their starts."""
    workers: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in sorted(found.runs, key=lambda run: run.start_ns):
        if found.jobs[run.job].way not in SHELL:
            workers[run.host, run.pid].append(run)
    return workers


def tasks_run_where_they_may(found: Evidence) -> Iterator[str]:
    """Constraints, and preferred nodes without a `delay_s`."""
    for run in found.runs:
        job = found.jobs[run.job]
        preferred = job.tasks[run.task].preferred if job.delay_s is None else ()
        if (preferred and run.node not in preferred) or (job.zone and found.zones.get(run.node) != job.zone):
            yield f"{run.job} task {run.task} ran at {run.node}, may at {preferred or job.zone}"


def stages_come_in_order(found: Evidence) -> Iterator[str]:
    """No task starts before all of the stages before have ended."""
    for name, job in found.jobs.items():
        for stage in job.stages:
            if not stage.after:
                continue
            runs = [run for task in _tasks_of(job, stage) for run in found.runs_of.get((name, task), ())]
            first_ns = min((run.start_ns for run in runs), default=None)
            if first_ns is None:
                continue
            for before in _tasks_after_which(job, stage):
                ends = [run.end_ns for run in found.runs_of.get((name, before), ()) if run.end_ns is not None]
                if not any(end_ns <= first_ns for end_ns in ends):
                    yield f"{name}: stage {stage.name} started before task {before} had ended"


# ---- what is left ----------------------------------------------------------------------------


def nothing_is_left(found: Evidence) -> Iterator[str]:
    """Queues drain to zero, processes and files go, programs end; nothing raises what it does not handle."""
    yield from found.troubles


CHECKS: tuple[Check, ...] = (
    every_job_ends,
    every_end_has_a_reason,
    no_job_is_refused,
    http_jobs_end_with_their_scheduler_only,
    outcomes_are_told_once,
    values_are_right,
    what_finished_has_ended,
    times_are_of_a_monotonic_clock,
    starts_are_limited,
    attempts_say_the_truth,
    restarts_are_explained,
    nothing_starts_after_its_outcome,
    losses_are_explained,
    failures_are_explained,
    cancellations_are_explained,
    results_are_lost_with_nodes_only,
    jobs_finish_without_their_client,
    no_node_runs_more_than_its_slots,
    workers_run_one_task_at_a_time,
    workers_belong_to_one_user,
    tasks_run_where_they_may,
    stages_come_in_order,
    nothing_is_left,
)


# ---- helpers ---------------------------------------------------------------------------------


def _outcomes(program: Program) -> list[Told]:
    return [line for line in program.lines if line.event is Event.OUTCOME]


def _tasks_of(job: Job, stage: Stage) -> range:
    """The numbers of a stage's tasks."""
    first = 0
    for one in job.stages:
        if one is stage:
            return range(first, first + len(one.tasks))
        first += len(one.tasks)
    raise ValueError(stage)


def _tasks_after_which(job: Job, stage: Stage) -> list[int]:
    """Those of the stages that this one names."""
    return [task for one in job.stages if one.name in stage.after for task in _tasks_of(job, one)]


def _tasks_before(job: Job, task: int) -> list[int]:
    """Those that have to finish before this one starts, directly."""
    stage = next(stage for stage in job.stages if task in _tasks_of(job, stage))
    return _tasks_after_which(job, stage)


def _shown(found: Evidence, runs: Iterable[Run]) -> str:
    """Runs, with seconds since the first line that any program wrote."""
    zero_ns = _zero_ns(found)

    def seconds(at_ns: int | None) -> str:
        return "never" if at_ns is None else f"{(at_ns - zero_ns) / 1e9:.3f}"

    return "; ".join(f"{run.host} pid {run.pid} {seconds(run.start_ns)} to {seconds(run.end_ns)}" for run in runs)


def _zero_ns(found: Evidence) -> int:
    return min((line.at_ns for line in found.told(*Event)), default=0)


def story(found: Evidence) -> Iterator[str]:
    """All that happened in a round, in order."""
    zero_ns = _zero_ns(found)
    lines = [
        (one.at_ns, f"{'mended' if one.mended else 'FAULT'} {one.kind} {one.target} {one.detail}")
        for one in found.happened
    ]
    for run in found.runs:
        what = f"{run.job} task {run.task} at {run.host} pid {run.pid}"
        lines.append((run.start_ns, f"start {what}"))
        if run.end_ns is not None:
            lines.append((run.end_ns, f"end   {what}"))
    for program in found.programs:
        for line in program.lines:
            told = f"{line.status} attempts {line.attempts} {line.node} {line.error}" if line.task >= 0 else line.error
            where = f"{line.job} task {line.task}" if line.task >= 0 else line.job
            lines.append((line.at_ns, f"told {program.name}.{program.life}: {line.event} {where} {told}"))
    for at_ns, what in sorted(lines):
        yield f"{(at_ns - zero_ns) / 1e9:9.4f} {what}"


def counts(found: Evidence) -> dict[str, int]:
    """The numbers of a round."""
    outcomes = list(found.told(Event.OUTCOME, Event.MAPPED))
    lost = [line for line in outcomes if line.status == LOST]
    once = [line for line in lost if found.jobs[line.job].max_attempts == 1]
    submitted = {(line.job) for line in found.told(Event.SUBMITTED)}
    return {
        "jobs": len(submitted),
        "tasks": sum(len(found.jobs[name].tasks) for name in submitted),
        "outcomes": len(outcomes),
        "finished": sum(line.status in (FINISHED, "") for line in outcomes),
        "failed": sum(line.status in (FAILED, work.PlannedFailure.__name__) for line in outcomes),
        "cancelled": sum(line.status == CANCELLED for line in outcomes),
        "lost": len(lost),
        "lost, never started": sum((line.job, line.task) not in found.runs_of for line in lost),
        "lost with max_attempts=1": len(once),
        "lost with max_attempts=1, never started": sum((x.job, x.task) not in found.runs_of for x in once),
        "results by reference lost": sum(line.result_lost for line in outcomes),
        "starts": len(found.runs),
        "starts again": len(found.runs) - len(found.runs_of),
        "programs killed": sum(not program.over for program in found.programs),
        "HTTP jobs gone with their scheduler": sum(1 for _ in found.told(Event.GONE)),
    }
