"""What is nearly a workflow is one, or is refused in words."""

import pytest

from tests.fuzz.conftest import Fuzzing
from tests.support.workflow_texts import PARSERS, tried

TEXTS = 40
"""A round."""


@pytest.mark.parametrize("suffix", list(PARSERS))
def test_texts_of_workflows(fuzzing: Fuzzing, suffix: str) -> None:
    fuzzing.each(lambda seed: _round(suffix, seed))


def _round(suffix: str, seed: int) -> None:
    assert 0 <= tried(suffix, TEXTS, seed) < TEXTS
