"""Take the picture of docs/dashboard.md anew, in half a minute, with a headless Chromium:

    python -m tests.support.dashboard_picture docs/dashboard.png

A real scheduler with 1,000 nodes that pretend (`pretended_cluster`) has jobs of some users, of which one is opened. The
picture names the columns of the table of jobs that the page had (`columns_of`), for a test to hold against the page.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from scheduler.http import neighbours
from sparrow_py.wire import messages as m
from tests.support.browser import MISSING, PROGRAM, browser
from tests.support.pretended_cluster import PretendedCluster

NODES, SLOTS = 1000, 4
WIDTH, HEIGHT = 1100, 1180
WAVES, WAVE_S = 5, 0.8
SWEEP, SWEEP_TASKS = "parameter sweep", 6_000
NAMES, USERS, TASKS = ("nightly query", "train", "map"), ("bob", "carol", "erin"), (10, 100, 400)
COLUMNS = b"Columns"
"""The keyword of the picture's text (PNG, 11.3.3.3) that names them, each on a line."""


def service_s(task: int) -> float:
    """Most tasks are short, and some take up to two seconds."""
    return 0.1 + 1.9 * ((task * 7919 % 997) / 997) ** 4


async def jobs_come(cluster: PretendedCluster) -> None:
    """The same jobs in each wave; then the one that is opened, one that is cancelled in part, and some that run."""
    numbers = itertools.count()
    for _ in range(WAVES):
        for name, user, tasks in itertools.product(NAMES, USERS, TASKS):
            cluster.submit(tasks, job=f"job-{next(numbers)}", user=user, name=name)
        await asyncio.sleep(WAVE_S)
    cluster.submit(SWEEP_TASKS, job="sweep", user="ada", name=SWEEP)
    cluster.submit(SWEEP_TASKS, job="tried", user="bob", name="train")
    await asyncio.sleep(WAVE_S)
    cluster.core.receive_from_client("bob#pretended", "bob", m.CancelJob("tried"), cluster.clock())
    cluster.update_timers()
    for name, user, tasks in zip(NAMES, USERS, TASKS, strict=True):
        cluster.submit(tasks, job=f"job-{next(numbers)}", user=user, name=name)


async def take(path: Path) -> None:
    """The picture, as PNG, with what it names."""
    neighbours.NODES_ASKED_MAX = 0  # Nodes that pretend answer nobody.
    cluster = PretendedCluster(NODES, SLOTS, service_s)
    await cluster.start()
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile)) as page:
            await page.size(WIDTH, HEIGHT)
            await page.open(f"http://{cluster.address}/")
            await page.until("document.querySelector('#connection')?.innerText === 'Live'")
            await jobs_come(cluster)
            opened = f"[...document.querySelectorAll('#jobs button')].find((one) => one.innerText === {SWEEP!r})"
            await page.until(opened)
            await page.value(f"{opened}.click()")
            await page.until("document.querySelector('#job-summary')?.innerText.includes('runs shown')")
            await page.value("document.activeElement.blur()")
            await page.value("scrollTo(0, 0)")
            await page.value("new Promise((done) => setTimeout(done, 1000))")  # The next state, with its figures.
            heads = await page.value("[...document.querySelectorAll('#jobs thead th')].map((one) => one.innerText)")
            await page.screenshot(path)
    await cluster.stop()
    path.write_bytes(with_text(path.read_bytes(), COLUMNS, "\n".join(heads)))


def with_text(picture: bytes, keyword: bytes, text: str) -> bytes:
    """The PNG with this text in it, before its end."""
    content = b"tEXt" + keyword + b"\0" + text.encode("latin-1")
    end = picture.rindex(b"IEND") - 4
    return (
        picture[:end]
        + struct.pack(">I", len(content) - 4)
        + content
        + struct.pack(">I", zlib.crc32(content))
        + picture[end:]
    )


def columns_of(picture: bytes) -> list[str]:
    """The columns that the picture names."""
    at = picture.index(b"tEXt" + COLUMNS + b"\0")
    (size,) = struct.unpack(">I", picture[at - 4 : at])
    return picture[at + 4 + len(COLUMNS) + 1 : at + 4 + size].decode("latin-1").split("\n")


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    if PROGRAM is None:
        sys.exit(MISSING)
    (path,) = arguments
    asyncio.run(take(Path(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
