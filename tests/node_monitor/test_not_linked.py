"""What a node monitor says of schedulers that it is not linked to."""

import asyncio
import logging

import pytest

from node_monitor import daemon as daemon_module
from node_monitor.daemon import NodeMonitorDaemon
from node_monitor.options import NodeMonitorOptions
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.wire import dialling
from tests.support.waiting import TIMEOUT_S


async def test_its_log_says_at_level_info_that_it_has_never_been_linked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(dialling, "NOT_LINKED_SAID_AFTER_S", 0.0)
    monkeypatch.setattr(daemon_module, "not_linked_log", SparingLog(daemon_module.log))
    options = NodeMonitorOptions(
        port=0, node_id="n", scheduler=("127.0.0.1:1",), warm=(), slots=1, blob_bytes_max=1_000_000
    )
    daemon = NodeMonitorDaemon(options)
    try:
        await daemon.start()
        async with asyncio.timeout(TIMEOUT_S):
            while "n: not linked, and dialling goes on: scheduler 127.0.0.1:1 cannot be reached: " not in caplog.text:
                await asyncio.sleep(0.001)
    finally:
        await daemon.stop()
