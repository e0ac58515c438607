"""What several tests of the library use."""

import pytest

from sparrow_py import JobSpec


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The jobs that were checked."""
    jobs: list[JobSpec] = []
    validate = JobSpec.validate
    monkeypatch.setattr(JobSpec, "validate", lambda spec: (jobs.append(spec), validate(spec))[1])
    return jobs
