"""How long to fuzz and from which seed: `make fuzz SECONDS=60`. Without that each test has one short round, always the
same."""

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

FIXED_SEED = 1
SEEDS = 1 << 32


@dataclass
class Fuzzing:
    """What one test may take: the seed of its first round, and for how long it goes on to further ones."""

    seed: int
    seconds: float
    name: str

    def each(self, play: Callable[[int], None]) -> None:
        """Play a round for each seed until the time is over; a failure says with which it was."""
        until_s = time.monotonic() + self.seconds
        for seed in itertools.count(self.seed):
            try:
                play(seed % SEEDS)
            except BaseException as error:
                error.add_note(f"again: make fuzz ARGS='--fuzz-seed {seed % SEEDS} -k {self.name}'")
                raise
            if time.monotonic() >= until_s:
                return


def pytest_configure(config: pytest.Config) -> None:
    """Settle the seed."""
    if config.option.fuzz_seed is None:
        config.option.fuzz_seed = random.randrange(SEEDS) if config.option.fuzz_seconds else FIXED_SEED


def pytest_report_header(config: pytest.Config) -> str:
    """Say the seed."""
    return f"fuzz: {config.option.fuzz_seconds:g} s from seed {config.option.fuzz_seed}"


@pytest.fixture
def fuzzing(request: pytest.FixtureRequest) -> Fuzzing:
    """The test's share of the time."""
    tests = sum("fuzzing" in getattr(item, "fixturenames", ()) for item in request.session.items)
    option = request.config.option
    return Fuzzing(option.fuzz_seed, option.fuzz_seconds / tests, request.node.originalname)
