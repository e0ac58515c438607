"""Tasks that submit tasks of their own."""

import asyncio
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from pathlib import Path
from typing import Any

from sparrow_py import AsyncClient, Client
from tests.support import tasks
from tests.support.waiting import wait_until


def fib(number: int) -> int:
    if number < 2:
        return number
    client = Client.current()
    one, other = client.submit(fib, number - 1), client.submit(fib, number - 2)
    return one.result() + other.result()


def chain(length: int) -> int:
    return 1 + Client.current().submit(chain, length - 1).result() if length else 0


def naps(seconds: float) -> float:
    """Has a task of its own sleep; when that was over."""
    Client.current().submit(time.sleep, seconds).result()
    return time.time()


def by_the_library(numbers: list[int]) -> list[int]:
    client = Client.current()
    assert client is Client.current()
    futures = [client.submit(tasks.square, number) for number in numbers]
    done, _ = wait(futures, return_when=FIRST_COMPLETED)
    assert done
    assert {future.result() for future in as_completed(futures)} == {number**2 for number in numbers}
    return [
        *client.map(tasks.square, numbers),
        *client.gather(futures),
        *client.submit_calls(tasks.square, [(9,)]).results(),
    ]


def by_asyncio(numbers: list[int]) -> list[int]:
    async def run() -> list[int]:
        async with AsyncClient.current() as client:
            return list(await asyncio.gather(*(client.submit(tasks.square, number) for number in numbers)))

    return asyncio.run(run())


async def by_a_coroutine(number: int) -> Any:
    async with AsyncClient.current() as client:
        return await client.submit(tasks.square, number)


def by_joblib(numbers: list[int], return_as: str) -> list[int]:
    import joblib

    import sparrow_py.joblib  # noqa: F401

    with joblib.parallel_config(backend="sparrow"):
        return list(joblib.Parallel(return_as=return_as)(joblib.delayed(tasks.square)(number) for number in numbers))


def large(size: int) -> bytes:
    client = Client.current()
    stored = client.put(bytes(size))
    assert len(client.submit(bytes, stored).result()) == size
    many = client.submit_calls(len, [(bytes(size // 10),) for _ in range(20)])  # What one frame cannot hold.
    assert set(many.results()) == {size // 10}
    return client.submit(bytes, bytes(size)).result()


def whoami() -> tuple[str, list[str]]:
    return repr(Client.current()), [name for name in os.environ if "TOKEN" in name]


def parent_that_dies(path: Path) -> None:
    """While it waits."""

    def die() -> None:
        wait_until(path.exists)
        os._exit(1)

    threading.Thread(target=die).start()
    Client.current().submit(child_that_stays, path).result()


def parent_that_ends(path: Path) -> str:
    Client.current().submit(child_that_stays, path)
    return "ended"


def child_that_stays(path: Path) -> None:
    written = path.with_suffix(".part")
    written.write_text(str(os.getpid()))
    written.rename(path)
    time.sleep(600)


def parent_of_held(gate: Path) -> list[str]:
    client = Client.current()
    return client.gather([client.submit(tasks.hold, gate, mark) for mark in ("one", "two")])


def client_once(gate: Path) -> None:
    """Becomes a client once the gate is open."""
    tasks.hold(gate, "one")
    Client.current()
