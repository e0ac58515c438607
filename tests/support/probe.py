"""A program that says what it was started with, as JSON, and ends as its argument tells."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path

PR_GET_DUMPABLE, PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER = 3, 2, 37
DIFFERENT = ("pid", "random", "environ")
"""What two processes never have in common, or what depends on the interpreter's own start."""

STATUS = {"Groups", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapEff", "CapInh", "NoNewPrivs"}
"""Of what the kernel says of a process."""


def observed() -> dict[str, object]:
    """All that might tell a forked process from an executed one."""
    main = sys.modules["__main__"]
    return {
        "pid": os.getpid(),
        "random": random.random(),
        "parent": os.getppid(),
        "session": os.getsid(0) == os.getpid(),
        "group": os.getpgid(0) == os.getpid(),
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "meta path": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "flags": list(sys.flags),
        "main": [main.__name__, main.__file__, main.__package__, main.__spec__.name],  # type: ignore[union-attr]
        "environ": dict(os.environ),
        "zone": time.tzname,
        "cwd": str(Path.cwd()),
        "umask": os.umask(0),
        "descriptors": _descriptors(),
        "streams": [
            [stream.fileno(), stream.encoding, stream.errors, getattr(stream, "line_buffering", None), stream.isatty()]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "kernel's": [line for line in _status() if line.partition(":")[0] in STATUS],
        "limits": [resource.getrlimit(kind) for kind in range(16)],
        "prctl": [_prctl(PR_GET_DUMPABLE), _prctl(PR_GET_PDEATHSIG), _prctl(PR_GET_CHILD_SUBREAPER)],
        "gc": [gc.isenabled(), gc.get_threshold()],
        "threads": [threading.main_thread() is threading.current_thread(), threading.active_count()],
        "thread id": threading.get_native_id() == os.getpid(),
        "loop": asyncio.events._get_running_loop() is None,
        "nice": os.nice(0),
        "cpus": sorted(os.sched_getaffinity(0)),
    }


def _descriptors() -> dict[str, tuple[str, bool]]:
    """By their numbers: what they are, and whether an executed program would have them."""
    found = {}
    for name in sorted(os.listdir("/proc/self/fd")):  # noqa: PTH208 - pathlib would follow them
        try:
            found[name] = (os.readlink(f"/proc/self/fd/{name}"), os.get_inheritable(int(name)))  # noqa: PTH115
        except OSError:  # That of the listing.
            continue
    return found


def _status() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


def _prctl(operation: int) -> int:
    """The value, which the kernel returns or writes."""
    value = ctypes.c_int(-1)
    returned: int = ctypes.CDLL(None).prctl(operation, ctypes.byref(value), 0, 0, 0)
    return returned if value.value == -1 else value.value


def end(how: str) -> None:
    """End as it says."""
    if how.isdecimal():
        sys.exit(int(how))
    elif how == "words":
        sys.exit("some words")
    elif how == "error":
        raise ValueError("an error")
    elif how == "interrupt":
        raise KeyboardInterrupt
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGTERM)
    elif how == "at exit":
        atexit.register(print, "at exit")
    elif how == "thread":
        threading.Thread(target=lambda: (time.sleep(0.01), print("from a thread"))).start()
    elif how == "at once":
        os._exit(9)


if __name__ == "__main__":
    if sys.argv[-1] == "look":
        print(json.dumps(observed()))
    else:
        end(sys.argv[-1])
