"""How often a daemon of an embedded cluster is started again."""

from sparrow_py.embedded.restarts import RESTARTS_MAX, RESTARTS_WINDOW_S, Restarts


def test_a_daemon_that_goes_on_dying_is_given_up() -> None:
    restarts = Restarts()
    assert [restarts.allowed(-9, number) for number in range(RESTARTS_MAX + 1)] == [True] * RESTARTS_MAX + [False]
    assert restarts.count(RESTARTS_MAX) == RESTARTS_MAX


def test_one_that_dies_now_and_then_is_started_again_for_ever() -> None:
    restarts = Restarts()
    assert all(restarts.allowed(1, number * RESTARTS_WINDOW_S / RESTARTS_MAX) for number in range(50))


def test_one_that_left_in_order_is_not_started_again() -> None:
    assert not Restarts().allowed(0, 0.0)
