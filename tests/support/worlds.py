"""What is done to whole clusters under virtual time (`simulator.soak.world.World`) by several tests."""

from __future__ import annotations

from simulator.soak.world import World


def crash_all_that_know_a_job(world: World, times: int, every_s: float, restart_s: float) -> None:
    """So many times, all schedulers that have a job die, and all nodes; each is there again after `restart_s`."""
    for _ in range(times):
        world.run_for(every_s)
        for scheduler in [one for one in world.schedulers if one.core.jobs]:
            world.crash_scheduler(scheduler, restart_s)
        for node in list(world.nodes):
            world.crash_node(node, restart_s)
