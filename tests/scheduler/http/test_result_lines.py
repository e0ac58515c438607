"""Outcomes of tasks as lines of JSON."""

import json

import pytest

from scheduler.http import result_lines
from scheduler.http.result_lines import encode_line, json_value, lines_from
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.http_jobs import Scheduler, lines


def test_large_result() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}])
    scheduler.finish(BlobRef("ab" * 32, 123, ("h:1", "[::1]:2")))
    (line,) = lines(job)
    urls = [f"http://{address}/v1/blobs/{'ab' * 32}" for address in ("h:1", "[::1]:2")]
    assert line["blob"] == {"hash": "ab" * 32, "size": 123, "urls": urls}
    assert "result" not in line


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", b"null"),
        (b"null", b"null"),
        (b' {"a": 1.00,\n"b": [12345678901234567890123]} ', b'{"a":1.00,"b":[12345678901234567890123]}'),
        ('"ü"'.encode(), '"ü"'.encode()),
        (b"nope", None),
        (b'"\xff"', None),
        (b'"\\ud800"', None),
        (b"NaN", None),
        (b"1e999", None),
        (b"1 2", None),
        (b"[" * 100_000 + b"]" * 100_000, None),
    ],
)
def test_results_that_are_json(data: bytes, value: bytes | None) -> None:
    assert json_value(data) == value


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_lines, "BATCH_BYTES", 100)
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}] * 10)
    scheduler.finish()
    assert lines_from(job, 0) == (job.lines[0], 1)
    assert len(lines(job)) == 10


def test_an_outcome_encodes_whatever_it_has() -> None:
    scheduler = Scheduler()
    job = scheduler.post(app="app", name="the job's", tasks=[{}])
    outcome = m.Outcome(job.id, 0, TaskStatus.LOST, b"", 'a "reason"\n', 0, "", None, None, None, "\0", "\u2028")
    line = json.loads(encode_line(job, outcome))
    assert (line["error"], line["stdout"], line["stderr"], line["stage"]) == ('a "reason"\n', "\0", "\u2028", "")
    assert (line["started_at_s"], line["service_s"], line["result"]) == (None, None, None)
    assert "id" not in line
