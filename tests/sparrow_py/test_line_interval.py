"""Lines of the log that are due once in a while."""

from sparrow_py.logs.line_interval import WARN_INTERVAL_S, LineInterval


def test_what_happens_all_the_time_is_said_once_in_a_while() -> None:
    lines = LineInterval()
    assert [lines.happened(1.0) for _ in range(3)] == [1, 0, 0]
    assert lines.happened(1.0 + WARN_INTERVAL_S) == 3
