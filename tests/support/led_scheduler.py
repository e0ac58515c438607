"""`python -m tests.support.led_scheduler`: a scheduler of a plane that has a leader, and that needs no solver."""

import scheduler.core
from scheduler import planes
from scheduler.__main__ import main
from tests.support.most_free_slots import LedMostFreeSlots

if __name__ == "__main__":
    scheduler.core.plane_of = lambda _, history: LedMostFreeSlots
    planes.warm_up_of = lambda _: None
    main()
