"""How results and exceptions of an actor's methods are encoded, as those of tasks are."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from typing import Any

from sparrow_py.actors.messages import CALL_BYTES_MAX
from sparrow_py.calls import encode_value
from sparrow_py.errors import shown
from sparrow_py.exception_pickling import encode_exception, text_of, with_traceback
from sparrow_py.futures.outcomes import carried

TEXT_CHARS_MAX = 1 << 16
"""Of the traceback of an exception that is too large to travel: its end is kept."""


def encode_result(value: Any) -> tuple[bool, bytes]:
    """Whether an exception was raised, and the result or that exception: a result may be such that it cannot travel."""
    try:
        data = encode_value(value)
    except MemoryError as error:
        BaseException.add_note(error, f"raised while the result, of type {type(value).__qualname__}, was pickled")
        return True, encode_error(error)
    except BaseException as error:  # To pickle runs the user's code.
        what = f"{text_of(shown, value)} of type {type(value).__qualname__}"
        return True, encode_error(TypeError(f"the result {what} cannot be pickled: {text_of(str, error)}"))
    if len(data) > CALL_BYTES_MAX:
        return True, encode_error(ValueError(f"the result has {len(data)} bytes; at most {CALL_BYTES_MAX} are allowed"))
    return False, data


def encode_error(error: BaseException, ours: tuple[str, ...] = ()) -> bytes:
    """The exception, with the text of its traceback from the user's own code on; `ours`: files that come before it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except BaseException as reason:  # It runs code of the exception's class.
        text = f"(the traceback of the {type(error).__name__} could not be formatted: {text_of(str, reason)})\n"
    with contextlib.suppress(BaseException):
        BaseException.__setattr__(error, "__traceback__", None)
    data = encode_exception(error, text)
    if len(data) > CALL_BYTES_MAX:
        # The text has that of the exception in it.
        too_large = RuntimeError(f"an exception of {len(data)} bytes: {text_of(shown, error)}")
        return encode_exception(too_large, text[-TEXT_CHARS_MAX:])
    return data


def decode_error(data: bytes) -> BaseException:
    """The exception, with the remote traceback; or, if it cannot be unpickled here, one that says so."""
    try:
        exception, text = pickle.loads(data)
        return with_traceback(carried(exception, "the actor raised"), text)
    except BaseException as error:  # Unpickling runs the user's code.
        return RuntimeError(f"the actor raised an exception that cannot be unpickled here: {text_of(shown, error)}")


def decode_answer(value: bytes, *, raised: bool) -> tuple[Any, BaseException | None]:
    """(the result, None), or (None, what to raise)."""
    if raised:
        return None, decode_error(value)
    try:
        return pickle.loads(value), None
    except BaseException as error:  # Unpickling runs the user's code.
        return None, carried(error, "the result's unpickling raised")
