"""The controller of a program over arrays: `python -m frontends.dataflow.controller`, a child of the program's process.

It is told on standard input how to reach its parent, and ends with it. What it decides is in `controller_core`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from random import Random
from typing import Any

import msgspec

from frontends.dataflow.commanding_controller import CommandingController
from frontends.dataflow.commands import Invoke, Submit
from frontends.dataflow.control_messages import (
    CONTROLLER,
    DRIVER,
    LOCAL,
    ControllerHere,
    Dismiss,
    Happened,
    Hello,
    Orders,
    Outcome,
    Received,
    RunFailed,
    RunOver,
    Runs,
    Unreachable,
    Values,
)
from frontends.dataflow.controller_core import ControllerCore, Snapshot, State
from frontends.dataflow.controller_effects import Complete, Drop, Effect, Keep, Send, SendStored, Tell
from frontends.dataflow.errors import LinkRefused
from frontends.dataflow.happenings import Witness
from frontends.dataflow.links_of import Peers, address_of, where_is
from frontends.dataflow.memory import Memory
from frontends.dataflow.shipping import unpack_definition
from frontends.dataflow.snapshot_files import SnapshotFiles

TICK_S = 0.1
IDLE_TICK_S = 0.5
"""Between runs, when a tick only looks whether workers are heard of."""
PARENT_ENDS_S = 1.0
"""Within which a process is gone whose links have ended with it."""
PARENT_LOOK_S = 0.01


class Controller:
    """The loop of the process."""

    def __init__(self, orders: Orders) -> None:
        self._peers = Peers(CONTROLLER, orders.key, Memory(), orders.transport, orders.allow_plaintext)
        address = self._peers.links.listen(orders.directory, orders.host)
        settings = orders.settings
        self._files = SnapshotFiles(settings.snapshot_dir)
        whole = {key: Snapshot(places, signals) for key, (signals, places) in self._files.whole().items()}
        self._core: ControllerCore = (
            ControllerCore(settings, Random(), whole)
            if settings.plane == LOCAL
            else CommandingController(settings, Random(), whole, definition_of=unpack_definition)
        )
        self._peers.links.dial(DRIVER, address_of(orders.driver))
        self._peers.send(DRIVER, ControllerHere(where_is(address)))
        self._over = False
        self._witness = Witness(time.time_ns) if orders.is_recorded else None
        """Sees what a timeline is to tell."""

    def serve(self) -> bool:
        """Until the parent says so, or is gone; which of the two."""
        links, core = self._peers.links, self._core
        ticked_s = time.monotonic()
        while not self._over:
            tick_s = IDLE_TICK_S if core.state is State.IDLE else TICK_S
            links.wait(max(0.0, ticked_s + tick_s - time.monotonic()))
            for peer, message in links.receive():
                self._handle(peer, message)
                self._act()
            if isinstance(core, CommandingController):
                core.step()
                self._act()
            for peer, why in links.lost():
                if peer == DRIVER:
                    return self._over
                if self._witness is not None and peer in core.workers:
                    self._witness.lost(peer, why)
                core.lost(peer, why, time.monotonic())
                self._act()
            if time.monotonic() >= ticked_s + tick_s:
                ticked_s = time.monotonic()
                core.tick(ticked_s)
                self._act()
        return True

    def close(self) -> None:
        self._core.close()
        self._act()
        self._peers.links.close()

    def _handle(self, peer: int, message: Any) -> None:
        core, now_s = self._core, time.monotonic()
        if self._witness is not None:
            self._witness.message(peer, message)
        if peer != DRIVER:
            if isinstance(message, Hello):
                core.hello(peer, message, now_s)
            else:
                core.receive(peer, message, now_s)
            return
        match message:
            case Runs():
                core.run(message, now_s)
            case Received():
                core.received(message, now_s)
            case Outcome():
                core.outcome(message, now_s)
            case Unreachable():
                core.unreachable(message, now_s)
            case Dismiss():
                self._over = True
            case Submit() | Invoke() | RunOver() | RunFailed() if isinstance(core, CommandingController):
                core.driver_says(message, now_s)

    def _act(self) -> None:
        """Do what the core says."""
        while effects := self._core.take_effects():
            for effect in effects:
                if self._witness is not None:
                    self._witness.effect(effect, self._core.rollbacks)
                self._do(effect)
        if self._witness is not None and (happenings := self._witness.take()):
            self._peers.send(DRIVER, Happened(happenings))

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(worker, message):
                self._peers.send(worker, message)
            case Tell(message):
                self._peers.send(DRIVER, message)
            case _:
                try:
                    self._do_with_files(effect)
                except OSError as error:
                    self._core.fail(f"snapshots cannot be kept: {error}", time.monotonic())

    def _do_with_files(self, effect: Keep | Complete | Drop | SendStored) -> None:
        match effect:
            case Keep(key, values):
                self._files.keep(key, values)
            case Complete(key, signals):
                self._files.complete(key, signals)
            case Drop(key):
                self._files.drop(key)
            case SendStored(worker, epoch, key, places):
                for place, value in self._files.read(key, places):
                    self._peers.send(worker, Values(epoch, {place: value}))


def main() -> None:
    """Read the orders, and serve."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides what Ctrl-C ends.
    orders = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Orders)
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    try:
        controller = Controller(orders)
    except LinkRefused as refused:
        if isinstance(refused.__cause__, ConnectionError | FileNotFoundError):  # The parent has ended meanwhile.
            _remove_directories(orders)
        sys.exit(f"sparrow dataflow controller: {refused}")
    try:
        is_told = controller.serve()
    finally:
        controller.close()
    if not is_told and _is_gone(parent):
        _remove_directories(orders)


def _is_gone(parent: int) -> bool:
    """Whether the parent, whose link has ended, has ended too. If not, snapshots are for the controller after this."""
    until_s = time.monotonic() + PARENT_ENDS_S
    while os.getppid() == parent and time.monotonic() < until_s:
        time.sleep(PARENT_LOOK_S)
    return os.getppid() != parent


def _remove_directories(orders: Orders) -> None:
    for directory in (orders.settings.snapshot_dir, orders.directory):
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
