"""`sparrow submit`: a job that is described in JSON."""

from __future__ import annotations

import getpass
import json
import random
import time
from http import HTTPStatus
from typing import Any, BinaryIO
from urllib.parse import quote

import click

from frontends.cli.connection import addresses_of, connection_options, nobody_answers
from frontends.cli.lines import print_lines, results_path
from frontends.daemon_http import SUBMIT_TIMEOUT_S, Answer, NotReached, ask, following, message
from sparrow_py.access.credentials import Access
from sparrow_py.errors import InvalidRequest, LinkError, NoScheduler, Refused
from sparrow_py.job import new_job_id

PATH = "/v1/jobs"
WRONG = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    }
)
"""Statuses that schedulers answer to a job that they will never take."""
LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses that schedulers answer to a job that they may take later."""


@click.command(short_help="Submit a job described in JSON.")
@connection_options
@click.option("--detach", is_flag=True, help="Print the job's id and do not follow it.")
@click.argument("file", type=click.File("rb"))
def submit(schedulers: list[str], access: Access, detach: bool, file: BinaryIO) -> int:
    """Submit the job that FILE describes in JSON (- for standard input), and print its results as they come.

    docs/http.md says what a job looks like. Each task's result is a line of JSON. Exits with 1 if a task did not
    finish. After Ctrl-C the job goes on.

    \b
    Examples:
      sparrow submit job.json
      echo '{"app": "command", "tasks": [{"payload": {"argv": ["uname", "-a"]}}]}' | sparrow submit -
      id=$(sparrow submit --detach job.json); sparrow results $id
    """
    job = read_job(file.read())
    address = submit_anywhere(schedulers, access, job)
    if detach:
        click.echo(job["job_id"])
        return 0
    try:
        with following(address, access, results_path(job["job_id"])) as lines:
            if lines is None:
                raise LinkError(f"scheduler {address} has no results of job {job['job_id']}")
            return print_lines(lines)
    except KeyboardInterrupt:
        job_id = job["job_id"]
        click.echo(f"sparrow: job {job_id} goes on; see sparrow results {job_id}, sparrow cancel {job_id}", err=True)
        raise


def read_job(data: bytes) -> dict[str, Any]:
    """The job that the text describes, with a new id if the text names none."""
    try:
        job = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("job", data[:80].decode("utf-8", "replace"), f"JSON ({error})") from None
    if not isinstance(job, dict):
        raise InvalidRequest("job", job, "an object with the fields of docs/http.md")
    # With an id from here, the job can be sent again without running twice.
    job["job_id"] = job.get("job_id") or new_job_id()
    return job


def submit_anywhere(schedulers: list[str], access: Access, job: dict[str, Any]) -> str:
    """Submit the job to a scheduler that takes it; returns its address.

    `InvalidRequest` if a scheduler finds the job invalid, `Refused` if no scheduler has room for it in time.
    """
    # The user of a token or certificate goes before the default one.
    path = f"{PATH}?default_user={quote(getpass.getuser(), safe='')}"
    body = json.dumps(job, ensure_ascii=False).encode("utf-8", "surrogatepass")
    addresses = addresses_of(schedulers)
    random.shuffle(addresses)
    give_up_at_s = time.monotonic() + SUBMIT_TIMEOUT_S
    while True:
        refusals, silent, elsewhere = [], [], []
        for address in addresses:
            try:
                answer = ask(address, access, "POST", path, body, allowed=WRONG | LATER)
            except NotReached as error:
                silent.append(error)
                continue
            except NoScheduler as error:
                # This scheduler may have taken the job, so that another one must not get it.
                raise NoScheduler(f"{error}; it may have taken job {job['job_id']}") from None
            if answer.status in WRONG:
                wrong = InvalidRequest.told("job", f"scheduler {address}: {message(answer.body)}")
                if not is_for_another_policy(answer):
                    raise wrong
                elsewhere.append(wrong)
                continue
            if answer.status not in LATER:
                return address
            refusals.append(answer)
        if not refusals and elsewhere:
            raise elsewhere[0]
        if not refusals:
            raise nobody_answers(schedulers, silent)
        _wait_for_room(refusals, give_up_at_s)


def is_for_another_policy(answer: Answer) -> bool:
    """Whether the scheduler refuses the job for its policy, so that one with another policy may take it."""
    error = answer.body.get("error")
    return isinstance(error, dict) and error.get("field") == "policy"


def _wait_for_room(refusals: list[Answer], give_up_at_s: float) -> None:
    """Wait until a scheduler that refused may have room; `Refused` if that is after `give_up_at_s`."""
    soonest = min(refusals, key=lambda answer: answer.retry_after_s or 1)
    wait_s = soonest.retry_after_s or 1
    if time.monotonic() + wait_s > give_up_at_s:
        raise Refused(f"scheduler {soonest.address}: {message(soonest.body)}", wait_s)
    time.sleep(wait_s)
