"""A client that is interrupted in the middle of a submission: in the client's own process, by a signal to itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

from sparrow_py.session import client_job
from sparrow_py.wire import messages as m

_chunks = client_job.chunks


def interrupt(job_id: str, after: int, number: int) -> None:
    """Have this process send itself the signal, once, when it has sent so many messages with tasks of the job."""
    left = itertools.count(after, -1)

    def chunks(job: str, *arguments: Any) -> Iterator[m.AddTasks]:
        for chunk in _chunks(job, *arguments):
            if job == job_id and next(left) == 0:
                os.kill(os.getpid(), number)
            yield chunk

    client_job.chunks = chunks  # type: ignore[assignment]
