"""The scheduler's OpenAPI document says what its answers have."""

from scheduler.http.openapi import scheduler_document
from tests.support.http_jobs import Scheduler, lines


def test_lines_are_as_the_document_says() -> None:
    schema = scheduler_document()["components"]["schemas"]["ResultLine"]
    scheduler = Scheduler()
    job = scheduler.post(app="app", tasks=[{}])
    scheduler.finish()
    assert set(schema["required"]) <= set(lines(job)[0]) <= set(schema["properties"])
