"""The results of a job over HTTP: printed line by line as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from urllib.parse import quote

import click

from sparrow_py.counted import counted
from sparrow_py.errors import LinkError, shown
from sparrow_py.logs.printable import printable

FINISHED = "finished"


def results_path(job_id: str) -> str:
    """The path under which a scheduler serves the job's results."""
    return f"/v1/jobs/{quote(job_id, safe='')}/results"


def print_lines(lines: Iterator[bytes]) -> int:
    """Print the lines, and on stderr how many tasks did not finish; returns the exit code, 1 if there are any."""
    count, others, first = 0, 0, ""
    for line in lines:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        count += 1
        task, status, error = _parse_line(line)
        if status != FINISHED:
            others += 1
            first = first or f"task {task} {status}: {printable(' '.join(error.split()))}"
    if others:
        click.echo(f"sparrow: {others:,} of {counted(count, 'task')} did not finish (first: {first})", err=True)
    return int(others > 0)


def _parse_line(line: bytes) -> tuple[int, str, str]:
    try:
        result = json.loads(line)
        return result["task"], result["status"], result["error"]
    except (ValueError, LookupError, TypeError):
        raise LinkError(f"a line of the answer is not the result of a task: {shown(line)}") from None
