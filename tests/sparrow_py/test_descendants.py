"""Whole trees of processes are killed at once, and only they."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest

from sparrow_py.processes import descendants
from sparrow_py.processes.descendants import kill_descendants
from sparrow_py.processes.process_control import children
from tests.support.daemons import gone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

Tree = Callable[[int], psutil.Process]


@pytest.fixture
def tree() -> Iterator[Tree]:
    """Starts a process with so many below it, each a child of the one before and in a session of its own."""
    with ExitStack() as ends:

        def start(depth: int) -> psutil.Process:
            script = 'n=$1; if [ "$n" -gt 0 ]; then setsid sh -c "$0" "$0" $((n - 1)) & fi; exec sleep 60'
            process = subprocess.Popen(["sh", "-c", script, script, str(depth)])
            ends.callback(process.wait)
            ends.callback(process.kill)
            root = psutil.Process(process.pid)
            wait_until(lambda: [p.name() for p in [root, *root.children(recursive=True)]] == ["sleep"] * (depth + 1))
            for below in root.children(recursive=True):
                ends.callback(lambda below=below: below.is_running() and below.kill())
            return root

        yield start


def test_one_turn_takes_a_tree_however_deep_and_spares_others(tree: Tree) -> None:
    before = children()
    spared, root = tree(2), tree(20)
    doomed = {root.pid, *(process.pid for process in root.children(recursive=True))}
    assert kill_descendants(before | {spared.pid}) == doomed
    wait_until(lambda: all(map(gone, doomed)))
    assert len(spared.children(recursive=True)) == 2 and spared.status() == psutil.STATUS_SLEEPING


def test_a_turn_takes_only_so_many(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    root = tree(4)
    below = root.children(recursive=True)
    monkeypatch.setattr(descendants, "HELD_MAX", 3)
    assert kill_descendants(before) == {root.pid, below[0].pid, below[1].pid}
    assert not any(map(gone, [process.pid for process in below[2:]]))


def test_a_number_that_is_no_child_of_the_held_parent_gets_no_signal(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it was given to another process after the look."""
    before = children()
    stranger, root = tree(0), tree(0)
    monkeypatch.setattr(
        descendants, "children", lambda of="self", threads_max=None: {root.pid} if of == "self" else {stranger.pid}
    )
    assert kill_descendants(before) == {root.pid}
    assert stranger.status() == psutil.STATUS_SLEEPING
    assert os.waitstatus_to_exitcode(os.waitpid(root.pid, 0)[1]) == -signal.SIGKILL
