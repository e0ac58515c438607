"""What daemons cost in the simulations."""

from __future__ import annotations

from simulator.costs import Cost, Costs

DAEMON = Cost(wake_us=10, frame_us=5, message_us=2.5)
"""From `benchmarks.cpu_per_task` on a quiet machine of two cores. Where all slots of one node end together (100-task
jobs on 1 × 16 slots), frames are few, and both daemons take 21 µs for the 8.3 messages of a task. Where each task is on
a node of its own (10-task jobs on 100 × 4), they take 63 µs for 17 messages if four jobs are in flight, so that a
process that works finds the next frame waiting, and 82 µs if each job is alone and most frames wake somebody. A frame
costs more here than there, as links between machines are TCP."""
COSTS = Costs(scheduler=DAEMON, node_monitor=DAEMON)
