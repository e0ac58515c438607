"""Executors' users against the files of results: names that lead elsewhere for a moment, at random."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node_monitor.blobs.result_files import ResultDirectory, Taking
from node_monitor.host.os_account import Account
from node_monitor.host.removal import remove_tree
from sparrow_py.errors import LinkError
from sparrow_py.executors.executor_protocol import File
from tests.support.unprivileged import NOBODY, interpreter, open_folder, takes_root

__all__ = ["open_folder"]
ROUNDS = 300
PATIENCE = 1000
"""Looks for the file before each."""
SIZE = 8000
SECRET = b"root's own" * (SIZE // 10)
FLIPPER = """
import contextlib, ctypes, os, sys, threading
folder, outside, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.chdir(folder)
libc = ctypes.CDLL(None)
HERE, EXCHANGE = -100, 2

def write():
    with open("new", "wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.rename("new", "result")
        return os.dup(file.fileno())

def names():
    os.link("result", "second name")
    os.unlink("second name")

def flip(*others):
    while True:
        for other in others:
            for _ in range(2):  # There and back.
                libc.renameat2(HERE, b"result", HERE, other, EXCHANGE)

def write_on():
    while True:
        if not os.path.lexists("result"):
            file = write()
            for _ in range(50):
                os.pwrite(file, os.urandom(8), 0)
            os.close(file)
            with contextlib.suppress(OSError):
                names()

os.symlink(outside, "link")
os.symlink(outside + "/secret", "secret")
os.mkdir("directory")
os.symlink(outside, "directory/link")
os.close(write())
print("ready", flush=True)
threading.Thread(target=flip, args=(b"link", b"secret", b"directory"), daemon=True).start()
threading.Thread(target=write_on, daemon=True).start()
sys.stdin.read()
"""


@contextmanager
def flipping(folder: str, outside: Path) -> Iterator[None]:
    """Beside this, another user changes what the directory's file `result` is, in two threads."""
    process = subprocess.Popen(
        [interpreter(), "-c", FLIPPER, folder, str(outside), str(SIZE)],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.kill()


def as_it_is(folder: Path) -> list[tuple[object, ...]]:
    """The directory and what is in it: what would show that somebody has changed or taken it."""
    found = [(path, path.lstat()) for path in (folder, *sorted(folder.iterdir()))]
    return [(path, of.st_ino, of.st_mode, of.st_uid, of.st_gid, of.st_nlink, of.st_ctime_ns) for path, of in found]


def test_names_that_lead_elsewhere_for_a_moment_lead_nowhere(open_folder: Path) -> None:
    """With `run_as` the files and directories of root were read, given away and deleted so, at the first try."""
    takes_root()
    outside = open_folder / "outside"
    (outside / "inner").mkdir(parents=True)
    outside.chmod(0o755)
    (outside / "secret").write_bytes(SECRET)
    (outside / "secret").chmod(0o600)
    before = as_it_is(outside)
    incoming, ours = open_folder / "incoming", open_folder / "ours"
    incoming.mkdir()
    ours.mkdir(0o700)
    directory = ResultDirectory(str(incoming), "executor", Account("nobody", NOBODY, NOBODY, (), "/"))
    file = File(f"{directory.path}/result", SIZE, "")
    taken = 0
    with flipping(directory.path, outside):
        for number in range(ROUNDS):
            for _ in range(PATIENCE):
                if os.path.lexists(file.path):
                    break
            taking = Taking(directory, file, str(ours / str(number)), NOBODY)
            try:
                taking.begin()
                assert taking.go_on()
            except LinkError:
                assert not (ours / str(number)).exists()
            else:
                path = ours / str(number)
                assert hashlib.sha256(path.read_bytes()).hexdigest() == taking.hash
                assert path.lstat().st_uid == 0 and path.read_bytes() != SECRET
                taken += 1
            finally:
                taking.close()
        remove_tree(directory.path)  # While they go on.
    directory.close()
    assert len(list(ours.iterdir())) == taken
    assert as_it_is(outside) == before
    assert (outside / "secret").read_bytes() == SECRET
    remove_tree(str(incoming))
    assert not os.path.lexists(incoming)
