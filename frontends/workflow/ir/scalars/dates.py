"""Days of the calendar: constants, and what is so many days or months later. No clock."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

Date = date
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")


def parsed_date(text: str) -> Date | None:
    """The day that the text `YYYY-MM-DD` names, None if it names none."""
    if not _ISO.fullmatch(text) or not text.isascii():
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def later(day: Date, count: int, unit: str) -> Date | None:
    """The day `count` (less than 0: earlier) units, DAY or MONTH, later; None outside the years 1 to 9999.

    A day that the month reached does not have becomes its last one: one month after 31 January is 28 or 29 February.
    """
    try:
        if unit == "DAY":
            return day + timedelta(days=count)
        months = day.year * 12 + day.month - 1 + count
        year, month = months // 12, months % 12 + 1
        return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))
    except (OverflowError, ValueError, calendar.IllegalMonthError):
        return None
