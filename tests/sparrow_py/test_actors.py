"""Actors at the client that owns them, with tasks in threads in place of a cluster's: calls and their answers, what
becomes of them as the actor is lost, moves or ends, and who is let in."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import hmac
import os
import pickle
import resource
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trustme

from sparrow_py import (
    TLS,
    ActorLost,
    AsyncActorHandle,
    CallOptions,
    InvalidRequest,
    LinkError,
    Refused,
    RemoteTraceback,
    SparrowError,
)
from sparrow_py.access.mutual_proof import CHALLENGE_BYTES, ProofError
from sparrow_py.actor import ActorCall, ActorHandle
from sparrow_py.actors import answers, calling, door, messages, owned, owner, places, serving
from sparrow_py.actors.calling import CallFuture, RemoteActorHandle, remote_handle
from sparrow_py.actors.greeting import INTRODUCTION_BYTES, Acceptor, Dialler
from sparrow_py.actors.messages import FROM_DIALLER, Answer, Call, IsActor, IsCaller, Ready, Splitter, frame_of
from sparrow_py.actors.methods import methods_of
from sparrow_py.actors.owned import OwnedActor
from sparrow_py.actors.owner import Actors
from sparrow_py.actors.places import Line
from sparrow_py.job import TaskStatus
from sparrow_py.session.loop_thread import LoopThread
from sparrow_py.wire.local_address import LOOPBACK
from tests.support.actor_tasks import ThreadedJobs, actors_of, make
from tests.support.tasks import Huge
from tests.support.waiting import TIMEOUT_S

HEAVY_BYTES = 16 << 20
"""More than a connection holds by itself."""


class Counter:
    """An actor that counts."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def increment(self, by: int = 1) -> int:
        self.count += by
        return self.count

    def fail(self) -> None:
        raise ValueError("not this one", self.count)

    async def later(self) -> int:
        await asyncio.sleep(0)
        return self.count

    def echo(self, value: bytes) -> bytes:
        return value

    def lock(self) -> Any:
        return threading.Lock()

    def _private(self) -> None:
        """Nobody may call it."""


class Unmade:
    """A class whose constructor raises."""

    def __init__(self) -> None:
        raise KeyError("no such thing")


class Unpicklable(Counter):
    """An actor whose state cannot move."""

    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Lock()


class Gated:
    """An actor whose calls last until the test lets them end."""

    gate = threading.Event()

    def passed(self) -> int:
        assert self.gate.wait(TIMEOUT_S)
        return 1


class Littering:
    """An actor whose coroutines leave something behind in their loop."""

    end = threading.Event()

    async def thread(self) -> None:
        self.left: Any = asyncio.ensure_future(asyncio.to_thread(self.end.wait, TIMEOUT_S))
        await asyncio.sleep(0)

    async def stubborn(self) -> None:
        async def background() -> None:
            while not self.end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(TIMEOUT_S)

        self.left = asyncio.ensure_future(background())
        self.left._log_destroy_pending = False  # That its loop is closed without it is what the test is about.
        await asyncio.sleep(0)

    async def generator(self) -> None:
        async def endless() -> AsyncIterator[int]:
            try:
                while True:
                    yield 1
            finally:
                self.end.set()

        self.left = endless()
        await anext(self.left)


class Forking(Counter):
    """An actor whose methods fork; the child goes on as if it were the actor."""

    def __init__(self) -> None:
        super().__init__()
        self.child = 0

    def fork(self, error: BaseException | None = None) -> int:
        self.child = os.fork()
        if not self.child and error is not None:
            raise error
        return self.child

    async def fork_later(self) -> int:
        await asyncio.sleep(0)
        return self.fork()

    def status(self) -> int:
        """With which the child has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


class Heavy(Counter):
    """An actor whose state is large, and not pickled before the test says so."""

    moves, may_move = threading.Event(), threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        self.moves.set()
        assert self.may_move.wait(TIMEOUT_S)
        return {"count": self.count, "load": bytes(HEAVY_BYTES)}


class OneWay(Counter):
    """An actor whose state can be pickled, and not unpickled."""

    def __setstate__(self, state: object) -> None:
        raise ValueError("no way back")


class Log:
    """An actor that notes in this process which calls have run."""

    ran: ClassVar[list[int]] = []

    def note(self, call: int) -> int:
        self.ran.append(call)
        return call


def run(test: Callable[[ThreadedJobs, Actors], Awaitable[None]]) -> None:
    """The test on a loop; afterwards all actors end, and their tasks with them."""

    async def played() -> None:
        jobs = ThreadedJobs()
        actors = actors_of(jobs)
        async with asyncio.timeout(TIMEOUT_S):
            try:
                await test(jobs, actors)
            finally:
                actors.close()
                jobs.let_start()
                await actors.wait_closed()
                await jobs.all_ended()

    asyncio.run(played())


def handle_of(actor: OwnedActor, cls: type = Counter) -> AsyncActorHandle:
    return AsyncActorHandle(actor, methods_of(cls))


async def in_thread(function: Callable[[], Any]) -> Any:
    """As a task does it: it blocks, and the owner's loop goes on."""
    return await asyncio.to_thread(function)


def test_calls_run_in_order_and_exceptions_come_with_their_traceback() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter, 10))
        assert counter.state == "starting"
        assert await asyncio.gather(*(counter.increment(by) for by in (1, 2, 3))) == [11, 13, 16]
        assert counter.state == "ready"
        with pytest.raises(ValueError, match="not this one") as caught:
            await counter.fail()
        assert caught.value.args == ("not this one", 16)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "in fail" in str(caught.value.__cause__)
        assert "serving.py" not in str(caught.value.__cause__)
        assert await counter.later() == 16
        with pytest.raises(TypeError, match=r"the result .* of type lock cannot be pickled"):
            await counter.lock()
        with pytest.raises(TypeError, match=r"unexpected keyword"):
            await counter.increment(to=3)
        assert await counter.increment() == 17

    run(test)


def test_a_result_for_whose_pickling_there_is_no_memory_is_a_memory_error() -> None:
    raised, data = answers.encode_result(Huge())
    error = answers.decode_error(data)
    assert raised and type(error) is MemoryError
    assert error.__notes__ == ["raised while the result, of type Huge, was pickled"]


def test_an_exception_that_is_too_large_travels_as_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback has its text in it. A message that is larger than a frame would be its actor's end."""
    monkeypatch.setattr(answers, "CALL_BYTES_MAX", 100_000)
    data = answers.encode_error(ValueError("x" * 200_000))
    assert len(data) <= 100_000
    error = answers.decode_error(data)
    assert type(error) is RuntimeError and str(error).startswith("an exception of ")
    assert str(error.__cause__).rstrip().endswith("x" * 1000)


def test_names_that_are_no_public_methods_are_attribute_errors_at_once() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        with pytest.raises(AttributeError, match="actor Counter has no method 'decrement'; it has echo, fail, "):
            counter.decrement()
        for name in ("_private", "__init__", "__dict__"):
            with pytest.raises(AttributeError, match="only public methods"):
                counter.__getattr__(name)
        remote = await in_thread(lambda: pickle.loads(pickle.dumps(counter)))
        with pytest.raises(AttributeError, match="has no method 'decrement'"):
            remote.decrement()

    run(test)


def test_a_name_that_the_worker_is_asked_for_all_the_same_is_refused_there() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        actor = make(actors, Counter)
        forged = AsyncActorHandle(actor, frozenset({"_private_", "missing"}))
        forged._methods |= {"_private"}
        with pytest.raises(AttributeError, match="begin with an underscore"):
            await forged._call("_private", (), {})
        with pytest.raises(AttributeError, match="missing"):
            await forged.missing()

    run(test)


def test_a_task_calls_through_the_handle_that_it_was_given() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter, 1))
        remote = await in_thread(lambda: pickle.loads(pickle.dumps(counter)))
        again = await in_thread(lambda: pickle.loads(pickle.dumps(remote)))
        assert not hasattr(remote, "stop")

        def task() -> list[Any]:
            futures = [(remote if number % 2 else again).increment() for number in range(6)]
            return [future.result(TIMEOUT_S) for future in futures]

        assert await in_thread(task) == [2, 3, 4, 5, 6, 7]
        assert await counter.increment() == 8
        error = await in_thread(lambda: remote.fail().exception(TIMEOUT_S))
        assert repr(error) == "ValueError('not this one', 8)"
        counter.stop()
        lost = await in_thread(lambda: remote.increment().exception(TIMEOUT_S))
        assert type(lost) is ActorLost

    run(test)


def test_what_done_callbacks_in_a_task_do_cannot_hold_up_answers(caplog: pytest.LogCaptureFixture) -> None:
    def exits(future: Future[Any]) -> None:
        sys.exit(f"in a callback, {future.done()}")

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = make(actors, Counter)
        gated = make(actors, Gated)

        def task() -> None:
            handle = remote_handle(counter.place, "Counter", ["increment"])
            gate = remote_handle(gated.place, "Gated", ["passed"])
            waited: list[BaseException] = []

            def waits(_: Future[Any]) -> None:
                for call in (gate.passed, handle.increment):
                    for wait in (
                        lambda call: call.result(TIMEOUT_S),
                        lambda call: concurrent.futures.wait([call], TIMEOUT_S),
                    ):
                        try:
                            wait(call())
                        except RuntimeError as error:
                            waited.append(error)

            Gated.gate.clear()
            first, second = gate.passed(), gate.passed()
            first.add_done_callback(exits)
            second.add_done_callback(waits)
            Gated.gate.set()
            assert gate.passed().result(TIMEOUT_S) == 1
            assert gate.passed().result(TIMEOUT_S) == 1
            assert handle.increment().result(TIMEOUT_S) == 3
            assert ["would wait for itself" in str(error) for error in waited] == 4 * [True]

        await in_thread(task)

    with caplog.at_level("ERROR", "sparrow.actors"):
        run(test)
    assert [record.message.partition(" for ")[0] for record in caplog.records] == ["exception calling callback"]


def test_a_connection_of_a_worker_ends_once_no_call_has_used_it_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "IDLE_S", 0.02)
    silences = threading.Semaphore(0)
    has_news = Line.has_news

    def heard(line: Line, within_s: float) -> bool:
        news = has_news(line, within_s)
        if not news:
            silences.release()
        return news

    monkeypatch.setattr(Line, "has_news", heard)

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        gated, counter = make(actors, Gated), make(actors, Counter)

        def task() -> None:
            Gated.gate.clear()
            first = remote_handle(gated.place, "Gated", ["passed"]).passed()
            for _ in range(3):
                assert silences.acquire(timeout=TIMEOUT_S)
            Gated.gate.set()
            assert first.result(TIMEOUT_S) == 1, "a call that lasts keeps its connection"
            handle = remote_handle(counter.place, "Counter", ["increment"])
            assert [handle.increment().result(TIMEOUT_S) for _ in range(50)] == list(range(1, 51))
            for caller in calling._callers.values():
                if caller._name in ("Gated", "Counter"):
                    caller._listener.join(TIMEOUT_S)
                    assert not caller._listener.is_alive()
            assert handle.increment().result(TIMEOUT_S) == 51

        await in_thread(task)

    run(test)


@pytest.mark.parametrize(("timeout_s", "gives_back"), [(0, False), (0.001, False), (10.0, True)])
def test_only_a_wait_that_may_last_gives_the_slot_back(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, gives_back: bool
) -> None:
    given_back: list[CallFuture] = []
    future = CallFuture()

    def without_slot(wait: Callable[[], Any]) -> Any:
        given_back.append(future)
        future.set_result(1)
        return wait()

    monkeypatch.setattr(calling, "SLOT_KEPT_S", 0.002)
    monkeypatch.setattr(calling, "task_that_waits", lambda: future)
    monkeypatch.setattr(calling, "without_slot", without_slot)
    with contextlib.nullcontext() if gives_back else pytest.raises(TimeoutError):
        assert future.result(timeout_s) == 1
    assert bool(given_back) is gives_back


def test_calls_of_a_lost_actor_fail_and_name_it_and_the_next_one_is_made_anew() -> None:
    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        actor = make(actors, Counter, 5, max_restarts=1)
        counter = handle_of(actor)
        assert await counter.increment() == 6
        jobs.tell(jobs.sinks[0], TaskStatus.LOST, "its executor died")
        assert counter.state == "restarting"
        assert await counter.increment() == 6, "the constructor made it anew"
        jobs.held = []
        jobs.tell(jobs.sinks[1], TaskStatus.LOST, "its executor died again")
        assert counter.state == "lost"
        with pytest.raises(ActorLost, match="actor Counter on node-7: its task was lost: its executor died again"):
            await counter.increment()
        with pytest.raises(ActorLost):
            await counter.ready()
        assert not actors._actors

    run(test)


def test_however_often_it_is_lost_no_call_runs_twice_and_one_fails_each_time() -> None:
    calls, every = 150, 10
    Log.ran.clear()

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        log = handle_of(make(actors, Log, max_restarts=calls, waiting_calls_max=calls), Log)
        futures = []
        for call in range(calls):
            futures.append(log.note(call))
            if call % every == every - 1:
                await futures[call - every // 2 - 1]  # Some are answered, one is with the actor, others wait.
                jobs.tell(jobs.sinks[-1], TaskStatus.LOST, "it is said to be dead, and is not")
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        lost = [one for one in outcomes if isinstance(one, ActorLost)]
        assert len(lost) <= calls // every
        assert [one for one in outcomes if not isinstance(one, ActorLost)] == [
            call for call, one in enumerate(outcomes) if one not in lost
        ]
        log.stop()
        await jobs.all_ended()
        assert len(set(Log.ran)) == len(Log.ran)
        assert {one for one in outcomes if one not in lost} <= set(Log.ran)

    run(test)


def test_a_connection_that_breaks_is_news_of_a_loss_if_the_cluster_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "NEWS_WITHIN_S", 0.0)

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        actor = make(actors, Counter)
        counter = handle_of(actor)
        await counter.ready()
        assert actor.life is not None and actor.life.guest is not None
        actor.life.guest.cut_off("somebody pulled the cable")
        with pytest.raises(ActorLost, match=r"the cable|the connection"):
            await counter.increment()

    run(test)


def test_an_exception_of_the_constructor_is_the_end_and_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_EXECUTOR_NODE", "node-3")

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        broken = handle_of(make(actors, Unmade, max_restarts=5), Unmade)
        with pytest.raises(ActorLost, match="its constructor raised KeyError: 'no such thing'") as caught:
            await broken.ready()
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.node == "node-3"
        assert broken.state == "lost"

    run(test)


def test_an_actor_whose_lease_is_over_moves_with_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(serving, "should_yield", lambda: asked.is_set() and not asked.clear())
    monkeypatch.setattr(serving, "LOOK_EVERY_S", 0.005)

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter, 5))
        assert await counter.increment() == 6
        asked.set()
        while len(jobs.specs) < 2:
            await asyncio.sleep(0.001)
        assert await counter.increment() == 7, "the object has moved"

    run(test)


def test_a_call_that_crosses_its_state_does_not_cut_that_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(serving, "should_yield", lambda: asked.is_set() and not asked.clear())
    monkeypatch.setattr(serving, "LOOK_EVERY_S", 0.005)

    Heavy.moves.clear()
    Heavy.may_move.clear()

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        heavy = handle_of(make(actors, Heavy), Heavy)
        assert await heavy.increment() == 1
        asked.set()
        await in_thread(lambda: Heavy.moves.wait(TIMEOUT_S))
        crosses = asyncio.ensure_future(heavy.increment())
        await asyncio.sleep(0)
        Heavy.may_move.set()
        assert await crosses == 2, "the object has moved, and has run the call there"
        assert len(jobs.specs) == 2

    run(test)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(("error", "status"), [(None, 0), (SystemExit(3), 3), (SystemExit("why"), 1), (KeyError(), 1)])
def test_a_child_that_a_method_has_forked_ends_and_never_answers(error: BaseException | None, status: int) -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        forking = handle_of(make(actors, Forking), Forking)
        assert await forking.fork(error) > 0
        assert await forking.status() == status
        assert await forking.fork_later() > 0
        assert await forking.status() == 0
        assert await forking.increment() == 1

    run(test)


def test_an_actor_that_cannot_move_is_lost_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "should_yield", lambda: True)

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        rooted = handle_of(make(actors, Unpicklable), Unpicklable)
        with pytest.raises(ActorLost, match=r"its lease was over, and its state cannot be pickled: TypeError: .*lock"):
            await rooted.increment()

    run(test)


def test_a_call_that_crosses_the_word_of_an_actor_that_cannot_move_goes_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yields = iter([True])
    monkeypatch.setattr(serving, "should_yield", lambda: next(yields, False))

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        rooted = handle_of(make(actors, Unpicklable, max_restarts=1), Unpicklable)
        assert await asyncio.gather(rooted.increment(), rooted.increment()) == [1, 2]

    run(test)


def test_an_actor_whose_node_monitor_is_gone_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "NEWS_WITHIN_S", 0.0)
    monkeypatch.setattr(serving, "should_yield", lambda: True)
    monkeypatch.setattr(serving, "is_orphaned", lambda: True)

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        with pytest.raises(ActorLost, match="connection"):
            await counter.increment()
        assert len(jobs.specs) == 1

    run(test)


def test_calls_beyond_the_maximum_are_refused_and_cancelled_ones_do_not_run() -> None:
    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        jobs.held = []
        counter = handle_of(make(actors, Counter, waiting_calls_max=2))
        first, second, third = (counter.increment() for _ in range(3))
        with pytest.raises(Refused, match="2 calls wait for actor Counter: waiting_calls_max"):
            await third
        first.cancel()
        jobs.let_start()
        assert await second == 1

    run(test)


def test_a_stopped_actor_ends_its_task_and_fails_its_calls() -> None:
    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        async with handle_of(make(actors, Counter)) as counter:
            assert await counter.increment() == 1
        assert counter.state == "stopped"
        with pytest.raises(ActorLost, match="actor Counter: it was stopped"):
            await counter.increment()
        await jobs.all_ended()
        assert not jobs.cancelled, "a message ends what does nothing"
        jobs.held = []
        waiting = handle_of(make(actors, Counter))
        call = waiting.increment()
        waiting.stop()
        assert jobs.cancelled == [jobs.specs[1].job_id]
        with pytest.raises(ActorLost, match="it was stopped"):
            await call

    run(test)


def test_an_actor_that_does_not_end_when_it_is_told_to_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "STOP_WITHIN_S", 0.01)

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        jobs.held, killed = [], asyncio.Event()
        monkeypatch.setattr(jobs, "cancel_job", lambda job_id, running: killed.set())
        actor = make(actors, Counter)
        line = await in_thread(lambda: Line(actor.place, IsActor(1)))  # It hears nothing of all that follows.
        line.send(Ready())
        await handle_of(actor).ready()
        actor.stop("it was stopped")
        assert not killed.is_set(), "it is told first"
        await killed.wait()
        line.close()

    run(test)


@pytest.mark.parametrize("method", ["thread", "stubborn", "generator"])
def test_a_stopped_actor_ends_whatever_its_coroutines_have_left(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(serving, "CLOSING_S", 0.01)
    Littering.end.clear()

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        async with handle_of(make(actors, Littering), Littering) as littering:
            await getattr(littering, method)()
        await jobs.all_ended()
        assert Littering.end.is_set() == (method == "generator"), "what can be ended is"

    try:
        run(test)
    finally:
        Littering.end.set()


def test_an_actor_whose_owner_is_gone_ends() -> None:
    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        actor = make(actors, Counter)
        await handle_of(actor).ready()
        actors.close()
        await jobs.all_ended()

    run(test)


def test_arguments_that_no_actor_is_given_are_refused() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        with pytest.raises(TypeError, match=r"args\[0\] is a future"):
            counter.increment(asyncio.get_running_loop().create_future())
        with pytest.raises(InvalidRequest, match=r"arguments of increment: '.* bytes' is not valid; allowed: at most"):
            counter.increment(bytes(messages.CALL_BYTES_MAX))
        for cls, allowed in ((len, "a class"), (type("Stops", (), {"stop": print}), "a class without stop")):
            with pytest.raises(InvalidRequest, match=allowed):
                methods_of(cls)  # type: ignore[arg-type]
        for field, value in (("max_restarts", -1), ("call_retries", 1.5), ("waiting_calls_max", 0)):
            with pytest.raises(InvalidRequest, match=field):
                make(actors, Counter, **{field: value})
        with pytest.raises(InvalidRequest, match=r"advertise: '203.0.113.1' is not valid; allowed: an address of this"):
            make(actors, Counter, advertise="203.0.113.1")
        with pytest.raises(InvalidRequest, match=r"gang"):
            await asyncio.to_thread(_made_with, CallOptions(gang=True))

    run(test)


def _made_with(options: CallOptions) -> None:
    from sparrow_py.actors.owner import definition_of

    definition_of(options, (), Counter, (), {}, max_restarts=0, call_retries=0, waiting_calls_max=1)


# ---- who is let in ---------------------------------------------------------------------------


def test_whoever_lacks_the_key_is_not_let_in() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        place = counter._actor.place
        for wrong in (place._replace(key=os.urandom(32)), place._replace(actor=99)):
            with pytest.raises(LinkError, match=f"cannot be reached from here at 127.0.0.1:{place.port}"):
                await in_thread(lambda place=wrong: Line(place, IsCaller()))
        forged = remote_handle(place._replace(key=bytes(32)), "actor Counter", ["increment"])
        lost = await in_thread(lambda: forged.increment().exception(TIMEOUT_S))
        assert type(lost) is ActorLost
        assert await counter.increment() == 1, "nobody else has called it"

    run(test)


@pytest.mark.parametrize(
    "said",
    [
        [IsCaller(), Answer(0, False, b"")],
        [IsCaller(), IsCaller()],
        [Ready()],
        [IsActor(1)],
        [IsActor(2)],
        [IsCaller(), Call(0, "m" * 2000, b"")],
    ],
    ids=lambda said: "-".join(type(one).__name__ for one in said),
)
def test_what_one_with_the_key_must_not_say_ends_its_connection_alone(said: list[Any]) -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        await counter.ready()

        def hostile() -> None:
            line = Line(counter._actor.place, said[0])
            try:
                for message in said[1:]:
                    line.send(message)
                with pytest.raises((EOFError, OSError)):
                    line.receive()
            except OSError:  # It was cut off before it had said all.
                pass
            finally:
                line.close()

        await in_thread(hostile)
        assert await counter.increment() == 1

    run(test)


def test_each_address_at_which_actors_dial_has_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "DOORS_MAX", 2)

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        places = [make(actors, Counter, advertise=host).place for host in (None, "127.0.0.2", LOOPBACK)]
        assert [place.host for place in places] == [LOOPBACK, "127.0.0.2", LOOPBACK]
        assert len({place.port for place in places}) == 2
        assert len({place.key for place in places}) == 3
        with pytest.raises(Refused, match="DOORS_MAX"):
            make(actors, Counter, advertise="127.0.0.3")
        monkeypatch.setattr(owner, "ACTORS_MAX", 3)
        with pytest.raises(Refused, match="ACTORS_MAX"):
            make(actors, Counter)

    run(test)


def test_bytes_that_are_no_handshake_and_silence_end_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_TIMEOUT_S", 0.01)

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        place = counter._actor.place
        await counter.ready()

        def strange(data: bytes) -> bytes:
            with socket.create_connection((place.host, place.port), TIMEOUT_S) as made:
                made.sendall(data)
                try:
                    return made.recv(1)
                except ConnectionResetError:
                    return b""

        assert [await in_thread(lambda data=data: strange(data)) for data in (b"", b"GET / HTTP/1.1" * 10)] == [
            b"",
            b"",
        ]
        assert await counter.increment() == 1

    run(test)


def tls_files(directory: Path) -> TLS:
    """A certificate of this machine, its key, and the authority that issued it."""
    authority = trustme.CA()
    certificate, files = authority.issue_cert("127.0.0.1"), [directory / name for name in ("cert", "key", "ca")]
    certificate.cert_chain_pems[0].write_to_path(files[0])
    certificate.private_key_pem.write_to_path(files[1])
    files[1].chmod(0o600)
    authority.cert_pem.write_to_path(files[2])
    return TLS(*map(str, files))


def test_connections_from_elsewhere_are_encrypted_with_the_certificate_of_the_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(owner, "is_loopback", lambda host: False)
    tls = tls_files(tmp_path)

    async def test(jobs: ThreadedJobs, _: Actors) -> None:
        actors = Actors(jobs, tls, lambda: LOOPBACK)
        try:
            actor = make(actors, Counter)
            counter, place = handle_of(actor), actor.place
            assert await counter.increment() == 1
            assert len(place.certificate) == 32
            with pytest.raises(LinkError, match="shows another certificate"):
                await in_thread(lambda: Line(place._replace(certificate=bytes(32)), IsCaller()))
            with pytest.raises(LinkError):  # In plain text.
                await in_thread(lambda: Line(place._replace(certificate=b""), IsCaller()))
            remote = await in_thread(lambda: pickle.loads(pickle.dumps(counter)))
            large = await in_thread(lambda: remote.echo(bytes(3 << 20)).result(TIMEOUT_S))
            assert large == bytes(3 << 20)
        finally:
            actors.close()
            await actors.wait_closed()

    run(test)


def test_too_many_that_prove_nothing_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "UNPROVED_MAX", 3)

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        place = counter._actor.place
        await counter.ready()
        with contextlib.ExitStack() as silent:
            made = [
                silent.enter_context(await in_thread(lambda: socket.create_connection(place[:2], TIMEOUT_S)))
                for _ in range(10)
            ]
            assert await in_thread(lambda: _is_cut_off(made[0]))
            assert await counter.increment() == 1

    run(test)


def test_however_many_come_at_once_few_are_unproved_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are accepted in one turn of the loop, or in few, and none of them ends in the turn that cuts it off."""
    monkeypatch.setattr(door, "UNPROVED_MAX", 3)
    unproved: list[int] = []
    connection_made = door.Guest.connection_made

    def counted(guest: door.Guest, transport: asyncio.BaseTransport) -> None:
        connection_made(guest, transport)
        unproved.append(sum(not other._why for other in guest._door.unproved))

    monkeypatch.setattr(door.Guest, "connection_made", counted)

    async def test() -> None:
        opened = door.Door(LOOPBACK, None, lambda actor: None, lambda actor, guest: None)  # type: ignore[arg-type,return-value]
        await opened._serving
        came = [socket.create_connection((LOOPBACK, opened.port), TIMEOUT_S) for _ in range(40)]
        assert await asyncio.to_thread(_is_cut_off, came[36])
        assert len(unproved) == 40 and max(unproved) == 3
        assert list(opened.unproved) == [guest for guest in opened._all() if not guest._why]
        opened.close()
        await opened.wait_closed()
        assert not opened._all()
        for one in came:
            one.close()

    asyncio.run(test())


def test_a_tls_handshake_that_does_not_begin_ends_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No bound counts the connection before."""
    assert door.TLS_HANDSHAKE_TIMEOUT_S <= 10
    monkeypatch.setattr(door, "TLS_HANDSHAKE_TIMEOUT_S", 0.01)

    async def test() -> None:
        tls = tls_files(tmp_path)
        opened = door.Door(LOOPBACK, tls, lambda actor: None, lambda actor, guest: None)  # type: ignore[arg-type,return-value]
        with socket.create_connection((LOOPBACK, opened.port), TIMEOUT_S) as silent:
            assert await asyncio.to_thread(_is_cut_off, silent)
        opened.close()
        await opened.wait_closed()

    asyncio.run(test())


def _is_cut_off(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def test_proofs_are_fresh_and_roles_differ() -> None:
    key, other = os.urandom(32), os.urandom(32)
    dialler, acceptor = Dialler(key, 7, bytes(32)), Acceptor({7: key}.get, os.urandom(32))
    assert len(dialler.introduction) == acceptor.wanted == INTRODUCTION_BYTES
    challenge = acceptor.receive(dialler.introduction)
    proof = dialler.challenged(challenge)
    assert len(challenge) == CHALLENGE_BYTES
    with pytest.raises(ProofError):  # Thrown back.
        Acceptor({7: key}.get, bytes(32)).receive(dialler.introduction)[32:] and acceptor.receive(challenge[32:])
    again = Acceptor({7: key}.get, os.urandom(32))
    again.receive(dialler.introduction)
    with pytest.raises(ProofError):  # Recorded.
        again.receive(proof)
    acceptor.receive(proof)
    assert acceptor.proved
    with pytest.raises(ProofError, match="does not have the key"):
        Dialler(other, 7, bytes(32)).challenged(challenge)
    with pytest.raises(ProofError, match="not here"):
        Acceptor({}.get, bytes(32)).receive(dialler.introduction)
    assert key not in dialler.introduction + challenge + proof
    assert hmac.digest(key, b"", "sha256") not in challenge


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(pieces: int) -> None:
    said = [IsActor(3), Call(1, "m", b"x" * 700), Answer(1, True, b""), Ready()]
    stream = b"".join(bytes(frame_of(one)) for one in said)
    splitter = Splitter(FROM_DIALLER)
    came = [one for at in range(0, len(stream), pieces) for one in splitter.feed(stream[at : at + pieces])]
    assert came == said
    with pytest.raises(LinkError, match="malformed"):
        splitter.feed(b"\x01\x00\x00\x00\xc1")
    with pytest.raises(LinkError, match="at most"):
        Splitter(FROM_DIALLER).feed(b"\xff\xff\xff\xff")


def test_an_actor_that_answers_is_not_lost_for_want_of_a_scheduler() -> None:
    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        actor = make(actors, Counter)
        counter = handle_of(actor)
        assert await counter.increment() == 1
        jobs.tell(jobs.sinks[0], TaskStatus.LOST, "no scheduler took it within submit_timeout_s", node="")
        assert await counter.increment() == 2
        assert counter.state == "ready"
        assert actor.life is not None and actor.life.guest is not None
        actor.life.guest.cut_off("somebody pulled the cable")
        with pytest.raises(ActorLost, match=r"pulled the cable; before that .* no scheduler took it"):
            await counter.increment()

    run(test)


def test_a_fork_ends_each_call_that_is_not_done_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door.Door, "forked", lambda _: None)  # This process needs its sockets.
    thread = LoopThread()
    monkeypatch.setattr(thread, "call_soon", lambda _: None)  # Its loop is busy.

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        jobs.held = []
        actor = make(actors, Counter)
        handle = ActorHandle(thread, actor, methods_of(Counter))
        queued, ended, called = handle.increment(), handle.increment(), ActorCall(thread)
        ended.set_result(7)
        actor.call("increment", b"", called)
        actors.forked("this is a child")
        for future in (queued, called):
            with pytest.raises(SparrowError, match="this is a child"):
                future.result(0)
        assert ended.result(0) == 7
        actors._actors.clear()

    run(test)
    thread.stop()


def test_nothing_that_a_callback_raises_or_a_user_sets_is_the_actors_end(caplog: pytest.LogCaptureFixture) -> None:
    thread = LoopThread()

    waited: list[str] = []

    def leave(_: object) -> None:
        sys.exit(1)

    def wait(_: object) -> None:
        try:
            concurrent.futures.wait([counter.increment()], TIMEOUT_S)
        except RuntimeError as error:
            waited.append(str(error))

    async def start() -> tuple[ThreadedJobs, Actors, OwnedActor]:
        jobs = ThreadedJobs()
        actors = actors_of(jobs)
        return jobs, actors, make(actors, Counter)

    jobs, actors, actor = thread.run(start)

    async def end() -> None:
        actors.close()
        await actors.wait_closed()
        await jobs.all_ended()

    try:
        counter = ActorHandle(thread, actor, methods_of(Counter))
        counter.ready(TIMEOUT_S)
        held = threading.Event()
        thread.call_soon(held.wait)
        first, set_by_user = counter.increment(), counter.increment()
        first.add_done_callback(leave)
        first.add_done_callback(wait)
        set_by_user.set_result(7)
        held.set()
        assert first.result(TIMEOUT_S) == 1
        thread.run(partial(asyncio.sleep, 0))
        assert counter.increment().result(TIMEOUT_S) == 3
        assert waited == ["this would wait for itself: done-callbacks run on the client's own loop"]
        assert "SystemExit" in caplog.text
        assert counter.state == "ready"
    finally:
        held.set()
        thread.run(end)
        thread.stop()


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_an_actor_whose_state_is_not_unpickled_is_made_anew_if_it_may(
    max_restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    monkeypatch.setattr(serving, "should_yield", lambda: asked.is_set() and not asked.clear())
    monkeypatch.setattr(serving, "LOOK_EVERY_S", 0.005)

    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, OneWay, 5, max_restarts=max_restarts))
        assert await counter.increment() == 6
        asked.set()
        while len(jobs.specs) < 2:
            await asyncio.sleep(0.001)
        if max_restarts:
            assert await counter.increment() == 6, "it was constructed anew"
            return
        with pytest.raises(ActorLost, match="its state cannot be unpickled: ValueError: no way back") as caught:
            await counter.increment()
        assert isinstance(caught.value.__cause__, ValueError)

    run(test)


def test_a_handle_that_comes_back_to_its_client_is_the_owners() -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        actor = make(actors, Counter)
        counter = handle_of(actor)
        remote = await in_thread(lambda: copy.deepcopy(counter))
        assert type(remote) is RemoteActorHandle, "in another thread the loop's own handle cannot be used"
        assert pickle.loads(pickle.dumps(remote)) is counter
        assert copy.deepcopy(counter) is counter
        assert await counter.increment() == 1
        thread = LoopThread()
        handle = ActorHandle(thread, actor, methods_of(Counter))
        assert await in_thread(lambda: copy.deepcopy(handle)) is handle
        thread.stop()

    run(test)


def test_a_copy_of_a_handle_never_dials_in_the_loop_that_would_have_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(_: ThreadedJobs, actors: Actors) -> None:
        counter = handle_of(make(actors, Counter))
        pickled = pickle.dumps(counter)
        remote = await in_thread(lambda: pickle.loads(pickled))
        assert await in_thread(lambda: remote.increment().result(TIMEOUT_S)) == 1
        calling._callers.clear()
        monkeypatch.setattr(places, "DIAL_TIMEOUT_S", 0.01)
        assert await remote.increment() == 2, "the owner's handle is taken"
        counter.stop()
        del counter
        for copied in (remote, pickle.loads(pickled)):
            assert type(copied) is RemoteActorHandle
            error = copied.increment().exception(0)
            assert (type(error), str(error)) == (ActorLost, "actor Counter: it has ended")

    run(test)


def test_a_cancelled_call_gives_its_place_back() -> None:
    async def test(jobs: ThreadedJobs, actors: Actors) -> None:
        jobs.held = []
        actor = make(actors, Counter, waiting_calls_max=2)
        counter = handle_of(actor)
        first, second = counter.increment(), counter.increment()
        assert first.cancel()
        assert second.cancel()
        await asyncio.sleep(0)  # asyncio tells of it in the loop's next round.
        wanted = counter.increment()
        call = ActorCall(thread)
        call.give_back = partial(actor.cancelled, actor.call("increment", b"", call))
        assert call.cancel()
        assert call.cancel(), "as of any future"
        other = counter.increment()
        jobs.let_start()
        assert [await wanted, await other] == [1, 2]

    thread = LoopThread()
    thread.call_soon = lambda action: action()  # type: ignore[method-assign]
    run(test)
    thread.stop()


def test_connections_leave_half_of_the_open_files_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))

    async def test(_: ThreadedJobs, actors: Actors) -> None:
        made = [make(actors, Counter) for _ in range(3)]
        for actor in made:
            await handle_of(actor).ready()
        fourth = handle_of(make(actors, Counter))
        with pytest.raises(ActorLost, match="cannot be reached"):
            await fourth.ready()
        assert await handle_of(made[0]).increment() == 1

    run(test)
