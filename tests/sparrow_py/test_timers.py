"""Timers of a core: in order, and those that mean nothing any more do not pile up."""

from sparrow_py.timing.timers import KEPT_MIN, Timers


def test_in_order_of_time_then_of_adding() -> None:
    timers, done = Timers(), list[str]()
    for name, at_s in (("b", 2.0), ("a", 1.0), ("c", 2.0), ("d", 3.0)):
        timers.at(at_s, lambda _, name=name: done.append(name))  # type: ignore[misc]
    timers.run_due(2.0)
    assert done == ["a", "b", "c"] and timers.next_deadline_s() == 3.0


def test_the_dead_are_dropped_and_the_living_stay() -> None:
    timers, done = Timers(), list[int]()
    for number in range(10 * KEPT_MIN):
        timers.at(float(number), lambda _, number=number: done.append(number), lambda number=number: number % 100 == 0)  # type: ignore[misc]
        assert len(timers) <= KEPT_MIN + 1
    timers.run_due(1e9)
    assert set(range(0, 10 * KEPT_MIN, 100)) <= set(done)
    assert len(timers) == 0 and timers.next_deadline_s() is None
