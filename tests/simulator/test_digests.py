"""Runs of both simulators do what they did when their digests were written: see `digests.py`."""

from __future__ import annotations

import pytest

from tests.simulator import digests

WANTED = digests.read()


@pytest.mark.parametrize("run", digests.FEW_RUNS)
def test_a_run_does_what_it_did(run: str) -> None:
    differing = digests.differing(run, WANTED)
    assert not differing, "\n".join(map(digests.advice, differing))


def test_the_file_has_every_run_and_no_other() -> None:
    assert list(WANTED) == [name for run in digests.ALL_RUNS for name in (run, f"{run}/audit")]
