"""The job log of a run of commands: a line for each that has ended, in the format of GNU parallel's `--joblog`.

Columns, with tabs between them: the number of the input from 1; the node, `:` for this machine; when the command
started, in seconds since the epoch; how long it ran, in seconds; bytes sent (always 0) and bytes of standard output;
exit code, -1 if there is none; the signal that killed it, else 0; the command as a shell would take it, with NUL in
place of each newline.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from sparrow_py.errors import InvalidRequest, SparrowError

HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand"
COLUMNS = HEADER.count("\t") + 1
HERE = ":"
NO_EXIT_CODE = -1
LOG_BYTES_MAX = 1 << 30
"""Of a log that is read."""
SHOWN_CHARS = 80
"""Of a command in an error."""


class Entry(NamedTuple):
    """A command that has ended."""

    number: int
    host: str
    started_at_s: float
    runtime_s: float
    output_bytes: int
    exit_code: int
    signal: int
    command: str

    @property
    def succeeded(self) -> bool:
        """Whether it exited with 0."""
        return not self.exit_code and not self.signal


def written(argv: Sequence[str]) -> str:
    """The command of a log's line."""
    return shlex.join(argv).replace("\n", "\0")


def is_command(logged: str, argv: Sequence[str]) -> bool:
    """Whether a log's line is of this command, in whatever way it is quoted there."""
    if logged == written(argv):
        return True
    try:
        return shlex.split(logged.replace("\0", "\n")) == list(argv)
    except ValueError:
        return False


def line(entry: Entry) -> str:
    """The entry as a line."""
    columns = (
        entry.number, entry.host, f"{entry.started_at_s:.3f}", f"{entry.runtime_s:10.3f}", 0, entry.output_bytes,
        entry.exit_code, entry.signal, entry.command,
    )  # fmt: skip
    return "\t".join(map(str, columns)) + "\n"


def parse(data: bytes, name: str) -> tuple[dict[int, Entry], int]:
    """The entries of a log by their numbers, the last of each; and how many bytes they and the header take.

    A last line without an end was being written when the run was killed: it does not count. `InvalidRequest` if this
    is no job log; `name` is that of its file.
    """
    whole = data[: data.rfind(b"\n") + 1]
    try:
        lines = whole.decode().split("\n")[:-1]
    except UnicodeDecodeError:
        raise _no_log(name, data[:SHOWN_CHARS]) from None
    if not data:
        return {}, 0
    if not lines or lines[0] != HEADER:
        raise _no_log(name, lines[0][:SHOWN_CHARS] if lines else data[:SHOWN_CHARS])
    entries = {}
    for number, text in enumerate(lines[1:], 2):
        entry = _entry(text, f"line {number} of {name}")
        entries[entry.number] = entry
    return entries, len(whole)


def _no_log(name: str, value: object) -> InvalidRequest:
    return InvalidRequest(f"joblog: line 1 of {name}", value, "the header of a job log: Seq, Host, Starttime, …")


def _entry(text: str, where: str) -> Entry:
    columns = text.split("\t", COLUMNS - 1)
    try:
        number, host, started_at_s, runtime_s, _, output_bytes, exit_code, signal, command = columns
        entry = Entry(
            int(number), host, float(started_at_s), float(runtime_s), int(output_bytes), int(exit_code), int(signal),
            command,
        )  # fmt: skip
    except ValueError:
        raise InvalidRequest(f"joblog: {where}", text[:SHOWN_CHARS], f"{COLUMNS} columns of a job log") from None
    if entry.number < 1:
        raise InvalidRequest(f"joblog: {where}", entry.number, "a Seq from 1")
    return entry


def _opened(path: str, flags: int) -> int:
    """The descriptor of a log that is opened for writing. In a directory that everybody may write to, such as /tmp,
    another account can have made a link in its place, to a file of this user's: no link is followed there."""
    if os.stat(os.path.dirname(path) or ".").st_mode & stat.S_IWOTH:  # noqa: PTH116, PTH120 - as the kernel takes it
        flags |= os.O_NOFOLLOW
    return os.open(path, flags, 0o666)


class JobLog:
    """A job log that is being written; each line is in the file before the next command is looked at.

    Parameters
    ----------
    path: of the file.
    keep: bytes of what is there that stay, and that are written after. 0 begins anew.
    """

    def __init__(self, path: str, keep: int = 0) -> None:
        self._path = path
        try:
            with contextlib.ExitStack() as on_failure:
                self._file = on_failure.enter_context(FileIO(path, "r+" if keep else "w", opener=_opened))
                if keep:
                    self._file.truncate(keep)
                    self._file.seek(keep)
                else:
                    self._file.write(f"{HEADER}\n".encode())
                on_failure.pop_all()
        except OSError as error:
            allowed = f"a file that can be written ({error.strerror})"
            if error.errno == errno.ELOOP:
                allowed = "a file, not a symbolic link in a directory that everybody may write to"
            raise InvalidRequest("joblog", path, allowed) from None

    def add(self, entry: Entry) -> None:
        """Write the entry; `SparrowError` if the file cannot be written to any more."""
        try:
            self._file.write(line(entry).encode())
        except OSError as error:
            raise SparrowError(f"joblog {self._path} cannot be written to: {error.strerror}") from None

    def __enter__(self) -> JobLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read(path: str) -> tuple[dict[int, Entry], int]:
    """The entries of the log in this file, see `parse`; none if there is no such file. `InvalidRequest` if it cannot be
    read."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LOG_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}, 0
    except OSError as error:
        raise InvalidRequest("joblog", path, f"a file that can be read ({error.strerror})") from None
    if len(data) > LOG_BYTES_MAX:
        raise InvalidRequest("joblog", path, f"a file of at most {LOG_BYTES_MAX} bytes")
    return parse(data, path)
