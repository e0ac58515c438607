"""Commands as tasks: the payloads that a frontend sends to the command executor, and the results that come back.

Payloads and results are msgpack maps with the field names below, so that a program in any
language can write and read them. All but `argv` may be left out of a payload.

A payload may be a JSON object with the same names as well, with text for `stdin`; then its result
is one, too, with text for `stdout` and `stderr`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.job import JobSpec

APP = "command"
STRING_BYTES_MAX = (128 << 10) - 1
"""Limit on one argument and on one NAME=value of the environment: the kernel's MAX_ARG_STRLEN, less its NUL."""
STRINGS_BYTES_MAX = 1 << 20
"""Limit on all of argv and env together. The kernel allows a quarter of the stack limit: 2 MiB as a rule."""
ARGUMENTS_MAX = 32_768


class CommandTask(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A command: no shell, `argv[0]` is looked up in PATH unless it has a slash.

    Its environment is PATH, HOME, LANG and TZ as its node has them, and then `env`.
    `cwd` is the directory to run it in, empty for the executor's. `slot_at` says where in argv the number of the place
    belongs that runs it, from 1: indices of arguments, each with the number of characters before it, in order.
    """

    argv: list[str]
    stdin: bytes = b""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = ""
    slot_at: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def validate(self, where: str = "") -> None:
        """Raise `InvalidRequest` for the first invalid field; `where` goes before the field's name."""
        _check_argv(where + "argv", self.argv)
        _check_env(where + "env", self.env)
        check_string(where + "cwd", self.cwd)
        _check_sum(where + "argv", self)
        if self.slot_at:
            _check_slot_at(where + "slot_at", self)
        if not isinstance(self.stdin, bytes):
            raise InvalidRequest(where + "stdin", self.stdin, "bytes")

    def in_place(self, place: str) -> CommandTask:
        """The task with the number of its place in its arguments."""
        if not self.slot_at:
            return self
        argv = list(self.argv)
        for argument, before in reversed(self.slot_at):
            argv[argument] = argv[argument][:before] + place + argv[argument][before:]
        return msgspec.structs.replace(self, argv=argv, slot_at=[])


class CommandResult(msgspec.Struct):
    """What a command did: its exit code (-N: killed by signal N) and the beginning of what it wrote.

    `truncated` says that it wrote more to stdout or stderr than the executor keeps (256 KiB each).
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool


class _JsonTask(msgspec.Struct, forbid_unknown_fields=True):
    """A task in a payload of JSON."""

    argv: list[str]
    stdin: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = ""


class _JsonResult(msgspec.Struct):
    """The result of a task whose payload is JSON."""

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool


_encoder = msgspec.msgpack.Encoder()
_task_decoder = msgspec.msgpack.Decoder(CommandTask)
_json_task_decoder = msgspec.json.Decoder(_JsonTask)
_result_decoder = msgspec.msgpack.Decoder(CommandResult)


def encode_task(task: CommandTask) -> bytes:
    """The payload of this task."""
    return _encoder.encode(task)


def is_json(payload: bytes) -> bool:
    """Whether a payload is JSON rather than msgpack, in which no map begins with a brace."""
    return payload.startswith(b"{")


def decode_task(payload: bytes) -> CommandTask:
    """The task of this payload; `InvalidRequest` if the payload is not a task, or the task has an invalid field."""
    encoding = "JSON" if is_json(payload) else "msgpack"
    try:
        task = _decode_json_task(payload) if encoding == "JSON" else _task_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("payload", payload, f"a {encoding} map of argv, stdin, env, cwd ({error})") from None
    task.validate()
    return task


def _decode_json_task(payload: bytes) -> CommandTask:
    task = _json_task_decoder.decode(payload)
    return CommandTask(task.argv, task.stdin.encode(), task.env, task.cwd)


def encode_result(result: CommandResult, *, as_json: bool = False) -> bytes:
    """The bytes of this result. In JSON, bytes that are not UTF-8 are written as \\xNN."""
    if not as_json:
        return _encoder.encode(result)
    stdout, stderr = (stream.decode("utf-8", "backslashreplace") for stream in (result.stdout, result.stderr))
    return msgspec.json.encode(_JsonResult(result.exit_code, stdout, stderr, result.truncated))


def decode_result(data: bytes) -> CommandResult:
    """The result of these bytes; `LinkError` if they are not one."""
    try:
        return _result_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LinkError(f"malformed result of a command, {len(data)} bytes: {error}") from None


def command_job(tasks: Iterable[CommandTask | Sequence[str]], **options: Any) -> JobSpec:
    """A job of these commands, each a `CommandTask` or just its argv; `options` are `JobSpec`'s.

    A command that ends with another exit code than 0 is a failed task that has a result.
    """
    payloads = [_payload(f"tasks[{index}]", task) for index, task in enumerate(tasks)]
    return JobSpec(tasks=payloads, app=APP, **options)


def _payload(where: str, task: CommandTask | Sequence[str]) -> bytes:
    if not isinstance(task, CommandTask):
        if isinstance(task, str | bytes) or not isinstance(task, Sequence):
            raise InvalidRequest(where, task, "a CommandTask, or a list of strings")
        task = CommandTask(list(task))
    task.validate(where + ".")
    return encode_task(task)


def check_string(field: str, value: object) -> None:
    """Raise `InvalidRequest` unless the kernel takes `value` as an argument of a command."""
    if not isinstance(value, str):
        raise InvalidRequest(field, value, "text")
    if "\0" in value:
        raise InvalidRequest(field, value, "text without NUL characters")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(field, value, "text that can be written as UTF-8") from None
    if size > STRING_BYTES_MAX:
        raise InvalidRequest(field, value, f"at most {STRING_BYTES_MAX} bytes")


def _check_argv(field: str, argv: object) -> None:
    if not isinstance(argv, list) or not argv or len(argv) > ARGUMENTS_MAX:
        raise InvalidRequest(field, argv, f"a list of 1 to {ARGUMENTS_MAX} strings")
    for index, argument in enumerate(argv):
        check_string(f"{field}[{index}]", argument)
    if not argv[0]:
        raise InvalidRequest(f"{field}[0]", argv[0], "the name of a command")


def _check_env(field: str, env: object) -> None:
    if not isinstance(env, dict) or len(env) > ARGUMENTS_MAX:
        raise InvalidRequest(field, env, f"a dict of at most {ARGUMENTS_MAX} strings")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise InvalidRequest(field, name, "names that are not empty and have no '='")
        check_string(f"{field} name", name)
        check_string(f"{field}[{name!r}]", value)
        check_string(f"{field}[{name!r}]", f"{name}={value}")


def _check_slot_at(field: str, task: CommandTask) -> None:
    if len(task.slot_at) > ARGUMENTS_MAX or task.slot_at != sorted(task.slot_at):
        raise InvalidRequest(field, task.slot_at, f"at most {ARGUMENTS_MAX} pairs, in order")
    for argument, before in task.slot_at:
        if not 0 <= argument < len(task.argv) or not 0 <= before <= len(task.argv[argument]):
            raise InvalidRequest(field, (argument, before), "index of an argument, and characters of it")


def _check_sum(field: str, task: CommandTask) -> None:
    strings = [*task.argv, *task.env, *task.env.values()]
    size = sum(len(string.encode()) + 1 for string in strings)
    if size > STRINGS_BYTES_MAX:
        raise InvalidRequest(field, task.argv, f"at most {STRINGS_BYTES_MAX} bytes together with env, not {size}")
