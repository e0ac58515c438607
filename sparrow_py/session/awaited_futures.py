"""Futures in the arguments of a client's calls: what is known of their tasks when the calls' job is submitted, and who
has the bytes of their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import BlobRef, Ended, JobSpec, TaskResult, TaskSpec, TaskStatus
from sparrow_py.stored_values import AwaitedFuture, CallSpec


def check_own(future: AwaitedFuture, session: object) -> None:
    """`InvalidRequest` if the future is of another session."""
    if future.session is not session:
        raise InvalidRequest("arguments", future, "futures of this very client")


class AwaitedFutures:
    """The futures that the tasks of a job ask for."""

    def __init__(self, spec: JobSpec, session: object) -> None:
        """Takes them out of the spec: futures have jobs, and these have their specs, so that the last future of a chain
        of calls would keep all of it. `InvalidRequest` for futures of another session, and where tasks cannot wait for
        them."""
        self._by_result: dict[TaskResult, AwaitedFuture] = {}
        for stage in spec.as_stages():
            for future in _futures_of(stage.tasks):
                check_own(future, session)
                if stage.gang:
                    raise InvalidRequest("arguments", future, "values in place of futures with gang=True")
                self._by_result[future.task_result] = future
        for call in [task for stage in spec.as_stages() for task in stage.tasks if isinstance(task, CallSpec)]:
            call.futures.clear()

    def all(self) -> Sequence[AwaitedFuture]:
        """Each once."""
        return list(self._by_result.values())

    def ended(self) -> dict[TaskResult, Ended]:
        """How those of their tasks ended that have."""
        ended = ((result, future.ended()) for result, future in self._by_result.items())
        return {result: how for result, how in ended if how is not None}

    def tell(
        self,
        told: Callable[[TaskResult, Ended], None],
        loop: asyncio.AbstractEventLoop,
        is_heard_of: Callable[[str], bool],
    ) -> None:
        """Have `told` called on the loop when one of those is done that have not ended: also if its job is never
        submitted. is_heard_of: whether it is known anyway how tasks of the job of this id end: a callback of each of
        its futures would be a fifth of what the client does for them."""
        for result, future in self._by_result.items():
            if not is_heard_of(result.job_id) and future.ended() is None:
                future.add_done_callback(_Teller(told, loop, result, future))


class _Teller:
    """A done-callback, of any thread."""

    __slots__ = ("_future", "_loop", "_result", "_told")

    def __init__(
        self,
        told: Callable[[TaskResult, Ended], None],
        loop: asyncio.AbstractEventLoop,
        result: TaskResult,
        future: AwaitedFuture,
    ) -> None:
        self._told, self._loop, self._result, self._future = told, loop, result, future

    def __call__(self, _: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        ended = self._future.ended()
        if ended is not None:
            self._told(self._result, ended)


async def content_of(futures: Sequence[AwaitedFuture], hash_: str) -> bytes | None:
    """The large result with this hash, once it is here; None if it is of none of these futures, or is lost."""
    for future in futures:
        ended = future.ended()
        if ended is None or not isinstance(ended[1], BlobRef) or ended[1].hash != hash_:
            continue
        await _done(future)
        content = future.content()
        return None if content is None else bytes(content)
    return None


async def _done(future: AwaitedFuture) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
    await done.wait()


def not_known(spec: JobSpec, may_come: Callable[[TaskResult], bool]) -> dict[TaskResult, Ended]:
    """How the tasks ended whose results the job asks for without futures, if nobody will say that any more."""
    gone = TaskStatus.LOST, b"", "nothing is known of it: no job of this client has it that is under way"
    return {result: gone for result in awaited_by(spec, but=CallSpec) if not may_come(result)}


def awaited_by(spec: JobSpec, *, but: type | tuple[()] = ()) -> set[TaskResult]:
    """The results of any jobs that tasks of this one ask for; of tasks that are not of the class `but`."""
    return {
        name
        for stage in spec.as_stages()
        for task in stage.tasks
        if type(task) is not bytes and isinstance(task, TaskSpec) and not isinstance(task, but)
        for name in task.inputs
        if isinstance(name, TaskResult)
    }


def has_futures(spec: JobSpec) -> bool:
    """Whether tasks of the job ask for futures."""
    return any([any(_futures_of(stage.tasks)) for stage in spec.as_stages()])


def _futures_of(tasks: Sequence[object]) -> Iterator[AwaitedFuture]:
    for task in tasks:
        if isinstance(task, CallSpec):
            yield from task.futures
