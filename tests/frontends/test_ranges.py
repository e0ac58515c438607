"""Ranges of options that are numbers."""

import click
import pytest

from frontends.cli.ranges import NumberRange


@pytest.mark.parametrize(("given", "number"), [("0.2", 0.2), ("7", 7.0), ("8", 8.0)])
def test_numbers_of_the_range_are_taken(given: str, number: float) -> None:
    assert NumberRange(0.2, 8).convert(given, None, None) == number


@pytest.mark.parametrize("given", ["nan", "-NaN", "inf", "0", "9", "x", ""])
def test_others_are_usage_errors(given: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberRange(0.2, 8).convert(given, None, None)
