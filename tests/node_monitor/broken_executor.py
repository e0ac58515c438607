"""The executor of the examples with one fault: `broken_executor.py FAULT`."""

import runpy
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "executor_stdlib.py"
fault = sys.argv[1]
example = runpy.run_path(str(EXAMPLE))
working = example["main"].__globals__
HELLO, DONE, RETURNED = working["HELLO"], working["DONE"], working["RETURNED"]
send, run, load, store = working["send"], working["run"], working["load"], working["store"]
waiting: list[Any] = []


def faulty_send(connection: Any, message: list[Any]) -> None:
    """Sends something else, now and then."""
    tag = message[0]
    if fault == "speaks before hello" and tag == HELLO:
        send(connection, [RETURNED, []])
    if fault == "another id" and tag == HELLO:
        message[2] = "somebody"
    if fault == "no JSON" and tag == DONE:
        message[3] = "not base64"
    if fault == "answers twice" and tag == DONE:
        send(connection, message)
    if fault == "out of order" and tag == DONE and message[1] == 10:
        waiting.append(message)
        return
    if fault == "deaf to revokes" and tag == RETURNED:
        return
    if fault == "returns what it ran" and tag == RETURNED:
        message[1] = [2]
    send(connection, message)
    while waiting:
        send(connection, waiting.pop())


def faulty_run(number: int, payload: Any) -> Any:
    """Runs otherwise than it should."""
    if fault == "no files" and not isinstance(payload, str):
        sys.exit(1)
    if fault == "result elsewhere":
        return [DONE, number, "finished", [str(EXAMPLE), EXAMPLE.stat().st_size, "0" * 64], "", time.time(), 0.0]
    answer = run(number, payload)
    if fault == "wrong hash":
        answer[3] = store(bytes(100_000))
        answer[3][2] = "0" * 64
    if fault == "monotonic clock":
        answer[5] = time.monotonic()
    if fault == "negative time":
        answer[6] = -1.0
    return answer


working["send"], working["run"] = faulty_send, faulty_run
try:
    working["main"]()
finally:
    if fault == "lives on":
        time.sleep(60)
