"""The dashboard as a person sees it: in a browser, by mouse, keyboard and what a screen reader is told."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scheduler.http import neighbours
from tests.support.browser import MISSING, PROGRAM, Page, browser
from tests.support.daemons import Daemon, get_json
from tests.support.guarded import ADA, CLUSTER, usual_tokens
from tests.support.pretended_cluster import PretendedCluster
from tests.support.waiting import wait_until

MARKUP = "<img src=x onerror=alert(1)><b>bold"
NODES = 1000
TASKS = 10_000


def text(of: str) -> str:
    return f"document.querySelector({json.dumps(of)})?.innerText"


async def fits(page: Page) -> bool:
    """Whether nothing has to be scrolled to the side."""
    return bool(await page.value("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.rest
@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
async def test_a_person_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One browser for all of it, as it takes a second to start."""
    monkeypatch.setattr(neighbours, "NODES_ASKED_MAX", 0)
    tokens = str(usual_tokens(tmp_path / "tokens"))
    cluster = PretendedCluster(NODES, 16, lambda task: 0.01 * (task % 7), token_file=tokens)
    await cluster.start()
    cluster.submit(3, job="bobs", user="bob")
    cluster.submit(TASKS, job=MARKUP, name=MARKUP, user="ada")
    await cluster.until(lambda: not cluster.core.jobs)
    async with browser(tmp_path / "profile") as page:
        await page.size(1280, 900)
        await page.open(f"http://{cluster.address}/")
        await _logs_in(page)
        await _sees_jobs(page)
        await _opens_a_timeline(page)
        await _walks_through_nodes(page)
        await _on_a_small_dark_screen(page)
        cluster = await _while_it_restarts(page, cluster, tokens)
        hosts = {urlsplit(url).netloc for url in page.requested if not url.startswith(("data:", "about:"))}
        assert hosts == {cluster.address}
        problems = [
            problem for problem in page.problems if "Failed to load resource" not in problem
        ]  # 401, and the gap.
        assert problems == []
    await cluster.stop()


def test_schedulers_that_share_a_node_find_each_other(tmp_path: Path) -> None:
    with Daemon("scheduler", log=tmp_path / "one") as one, Daemon("scheduler", log=tmp_path / "other") as other:
        flags = ("--scheduler", f"{one.address},{other.address}", "--slots", "1")
        with Daemon("node_monitor", *flags, log=tmp_path / "node") as node:
            both = sorted([one.address, other.address])
            wait_until(
                lambda: get_json(node.address, "/v1/nodes")["nodes"][0]["scheduler_addresses"] == both, "both links"
            )
            (found,) = get_json(one.address, "/v1/schedulers")["schedulers"]
    assert (found["address"], found["answer"], found["nodes"]) == (other.address, "takes jobs", 1)


async def _logs_in(page: Page) -> None:
    await page.until("document.activeElement?.id === 'token'")
    for token, seen in (("x" * 32, text("#login-problem")), (ADA, "!document.getElementById('main').hidden")):
        await page.value(f"document.activeElement.value = {token!r}")
        await page.press("Enter", 13)
        await page.until(seen)
    assert await page.value("document.cookie") == ""  # No script can read it.


async def _sees_jobs(page: Page) -> None:
    await page.until(f"{text('#connection')} === 'Live'")
    assert await page.value(text("#jobs tbody td")) == MARKUP
    assert "bobs" not in await page.value(text("#jobs tbody"))
    assert await page.value("document.querySelector('main img, main b')") is None
    assert await page.value(text("#tiles dd")) == "1,000"
    assert "Cancelled" in await page.value(text("#jobs thead"))
    assert ", placement " in await page.value(text("#about"))
    span = "{ reservations: 4, reservations_cancelled: 12, noops: 3, launched: 5 }"  # Most were made before it.
    assert await page.value(f"percent(12, reservationsEnded({span}))") == "60 %"
    search = (
        "const field = document.getElementById('search'); field.value = {}; field.dispatchEvent(new Event('input'))"
    )
    await page.value(f"{{ {search.format(repr('nothing of that name'))} }}")
    await page.until(f"{text('#found')} === 'No job has this text.'")
    await page.value(f"{{ {search.format(repr('ONERROR'))} }}")
    await page.until("document.querySelectorAll('#jobs tbody tr').length === 1")


async def _opens_a_timeline(page: Page) -> None:
    await page.value("document.querySelector('#jobs tbody button').focus()")
    await page.press("Enter", 13)
    await page.until(f"{text('#job-summary')}.includes('10,000 runs shown')")
    assert await page.value("document.activeElement.id") == "job-heading"
    await page.value("document.getElementById('timeline').focus()")
    for key in ("ArrowDown", "ArrowDown"):
        await page.press(key)
    assert str(await page.value(text("#task-line"))).startswith("Task 1: finished, waited ")
    await page.press("+")
    await page.press("End")
    assert str(await page.value(text("#task-line"))).startswith(f"Task {TASKS - 1}: finished")
    assert await page.value("timeline.view.rows < 10000 && timeline.view.top > 0")
    await page.press("0")
    for button in ("by-node", "zoom-in", "zoom-out", "zoom-all", "by-task"):
        await page.value(f"document.getElementById('{button}').click(); timeline.draw()")
    drawn = "(() => { const canvas = document.getElementById('timeline'), pen = canvas.getContext('2d');"
    drawn += "return new Set(pen.getImageData(0, 0, canvas.width, canvas.height).data).size > 20 })()"
    assert await page.value(drawn)


async def _walks_through_nodes(page: Page) -> None:
    await page.value("document.getElementById('nodes-map').focus()")
    await page.press("ArrowRight")
    assert str(await page.value(text("#node-line"))).startswith("node-0000:20504 (127.0.0.1:1), ready: 0 of 16 slots")
    await page.value("document.getElementById('nodes-view').click()")
    assert await page.value(text("#node-line")) == "The first 200 of 1,000 nodes"
    await page.value("document.getElementById('nodes-view').click()")


async def _on_a_small_dark_screen(page: Page) -> None:
    assert await fits(page)
    back = "getComputedStyle(document.body).backgroundColor"
    light = await page.value(back)
    await page.size(400, 800, dark=True)
    await page.until(f"{back} !== {light!r}")
    assert await fits(page)
    nameless = "[...document.querySelectorAll('button, input, select, canvas')].filter((one) => !one.innerText && "
    nameless += "!one.ariaLabel && !one.labels?.length && !one.closest('[role=img][aria-describedby]'))"
    nameless += ".map((one) => one.outerHTML)"
    assert await page.value(nameless) == []


async def _while_it_restarts(page: Page, cluster: PretendedCluster, tokens: str) -> PretendedCluster:
    """A scheduler that ends is missed, and another one in its place asks for the token again."""
    port = int(cluster.address.rpartition(":")[2])
    await page.value(f"fetch('/v1/session', {{headers: {{Authorization: 'Bearer {CLUSTER}'}}}})")
    await cluster.stop()
    await page.until(f"{text('#connection')}.startsWith('The scheduler has not answered since')")
    assert await page.value("document.getElementById('main').classList.contains('stale')")
    assert await page.value(text("#jobs tbody td")) == MARKUP
    following = PretendedCluster(2, port=port, token_file=tokens)
    await following.start()
    await page.until("document.activeElement?.id === 'token'")
    await page.value(f"document.activeElement.value = {CLUSTER!r}")
    await page.press("Enter", 13)
    await page.until(f"{text('#connection')} === 'Live' && {text('#tiles dd')} === '2'")
    return following
