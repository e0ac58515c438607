"""A headless Chromium, if one is installed, by the DevTools protocol over aiohttp: no driver has to be installed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "chromium is not installed (Debian: apt-get install chromium)"
START_S = 30.0


class Page:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        """Exceptions, refusals of the content policy and errors that the page has logged."""
        self.requested: list[str] = []
        """URLs."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                detail = said["params"]["exceptionDetails"]
                self.problems.append(detail.get("exception", {}).get("description", detail["text"]))
            elif said["method"] == "Log.entryAdded":
                entry = said["params"]["entry"]
                self.problems.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
            elif said["method"] == "Network.requestWillBeSent":
                self.requested.append(said["params"]["request"]["url"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; returns its result."""
        number = next(self._numbers)
        self._answers[number] = answered = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answered, START_S)
        assert "error" not in said, f"{method}: {said['error']}"
        return said["result"]

    async def open(self, url: str) -> None:
        """Go there."""
        await self.send("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """Of an expression of JavaScript, which may be a promise."""
        result = await self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until it is true."""
        async with asyncio.timeout(START_S):
            while not await self.value(f"Boolean({expression})"):
                await asyncio.sleep(0.02)

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Of the window, and the colours that the person likes."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str, code: int = 0) -> None:
        """A key, at what has the focus."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """As PNG: of the window, or of the whole page."""
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Page]:
    """A browser with one page, whose profile is in this directory, until the block ends."""
    assert PROGRAM is not None
    process = subprocess.Popen(
        [
            PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            f"--user-data-dir={directory}", "--no-first-run", "--disable-background-networking", "--disable-sync",
            "--disable-component-update", "--no-default-browser-check", "--disable-extensions", "about:blank",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        port = await _port(directory / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                targets = await response.json()
            url = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.send(f"{domain}.enable")
                yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    async with asyncio.timeout(START_S):
        while not (file.exists() and file.read_text().count("\n")):
            assert process.poll() is None, "chromium has ended"
            await asyncio.sleep(0.02)
    return int(file.read_text().split("\n")[0])
