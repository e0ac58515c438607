"""Claims that simulations show: in a cheap form in `make test`, and with confidence in `make confidence`."""

from collections.abc import Iterator

import pytest

from tests.support.paired import cheaply


@pytest.fixture(params=["cheap", pytest.param("confident", marks=pytest.mark.confident)])
def confidence(request: pytest.FixtureRequest) -> Iterator[None]:
    """With one seed, and with several and an interval."""
    if request.param == "cheap":
        with cheaply():
            yield
    else:
        yield
