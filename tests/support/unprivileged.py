"""Daemons and tasks of another user, for tests that root runs: what a user may not do, root may."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534
"""A user who owns nothing. Its group has the same number."""
SOMEBODY = 65533
"""Another."""
PYTHONPATH = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])


def another_account() -> tuple[str, int]:
    """The name and the user id of an account that is neither root nor `nobody`; skips the test if there is none.

    Every system has `daemon` or `bin`, which own next to nothing.
    """
    for name in ("daemon", "bin"):
        try:
            uid = pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
        if uid not in (0, NOBODY):
            return name, uid
    pytest.skip("there are no two accounts that own nothing")


def takes_root() -> None:
    """Skip the test unless it may start processes of other users."""
    if os.geteuid() != 0:
        pytest.skip("only root may start processes of other users")


@functools.cache
def interpreter() -> str:
    """An interpreter of this version that every user may run, and that finds our packages; skips the test if none is.

    A virtual environment's may lie in a home directory that is closed to others.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        if python is not None and _runs(python):
            return python
    pytest.skip(f"no {version} that other users may run and that finds the packages in {PYTHONPATH}")


def _runs(python: str) -> bool:
    try:
        subprocess.run(
            [python, "-c", "import frontends.python.executor, cloudpickle"],
            user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={"PYTHONPATH": PYTHONPATH},
            check=True, capture_output=True, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that everybody may enter and list; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="sparrow-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
