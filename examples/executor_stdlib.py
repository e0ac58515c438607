"""An executor with nothing but the standard library: the app "words" counts the words of a text.

    sparrow-node-monitor --executor "words=python3 examples/executor_stdlib.py"

A task's payload is a text in UTF-8, its result {"word": count, ...} in JSON, the commonest first.
The protocol is in docs/executor-protocol.md; this executor speaks it in JSON, and has one place.
"""

import base64
import collections
import hashlib
import json
import os
import re
import socket
import struct
import tempfile
import time
from pathlib import Path

APP = "words"
INLINE_BYTES_MAX = 65536
HELLO, DONE, RETURNED, RUN, REVOKE = 1, 2, 3, 10, 13


def count_words(text):
    """The work of a task."""
    return dict(collections.Counter(re.findall(r"\w+", text.lower())).most_common())


def load(data):
    """Bytes that a message carries: base64, or [path, size, hash] of a file."""
    return base64.b64decode(data) if isinstance(data, str) else Path(data[0]).read_bytes()


def store(value):
    """A result as a message carries it: a large one goes into a new file in this executor's directory."""
    if len(value) <= INLINE_BYTES_MAX:
        return base64.b64encode(value).decode()
    with tempfile.NamedTemporaryFile(dir=os.environ["SPARROW_EXECUTOR_FILES"], delete=False) as file:
        file.write(value)
    return [file.name, len(value), hashlib.sha256(value).hexdigest()]


def run(number, payload):
    """Run a task: the `Done` that says how it ended."""
    started_at_s, started_s = time.time(), time.monotonic()
    try:
        status, error = "finished", ""
        result = store(json.dumps(count_words(load(payload).decode())).encode())
    except (OSError, ValueError) as problem:  # No such file, a full disk, or no UTF-8: the task has failed.
        status, error, result = "failed", str(problem), ""
    return [DONE, number, status, result, error, started_at_s, time.monotonic() - started_s]


def send(connection, message):
    """Send a frame of one message."""
    body = json.dumps([message]).encode()
    connection.sendall(struct.pack(">I", len(body)) + body)


def main():
    """Serve the node monitor until it closes the connection."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["SPARROW_EXECUTOR_SOCKET"])
    send(connection, [HELLO, 1, os.environ.get("SPARROW_EXECUTOR_ID", ""), APP, 1, "", os.getpid()])
    stream = connection.makefile("rb")
    while len(header := stream.read(4)) == 4:
        for tag, *fields in json.loads(stream.read(*struct.unpack(">I", header))):
            if tag == RUN:
                number, _common, payload = fields[:3]
                send(connection, run(number, payload))
            elif tag == REVOKE:  # The runs that it names have ended by now, so that none is given back.
                send(connection, [RETURNED, []])


if __name__ == "__main__":
    main()
