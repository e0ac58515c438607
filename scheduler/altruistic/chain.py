"""How much is used when, as steps that are chained: what `profile` has in order, for those who put in very many pieces.

A chain is `at_s` (when a step begins; step 0 at minus infinity), `after` and `before` (the steps beside it in time, -1
for none) and `used` (a row a step, a column a resource), of which the first `steps` rows count. Steps stay where they
are in the arrays, so whoever remembers one finds its way from there, and nothing is moved when one is put in between.
"""

from __future__ import annotations

from scheduler.altruistic.dags import Vector
from scheduler.altruistic.kernels import inlined
from scheduler.altruistic.profile import ROUNDING, Indexes, Matrix


@inlined
def seek(at_s: Vector, after: Indexes, before: Indexes, step: int, time_s: float) -> int:
    """The last step that begins before this time, from one nearby."""
    while at_s[step] >= time_s:
        step = before[step]
    while after[step] >= 0 and at_s[after[step]] < time_s:
        step = after[step]
    return step


@inlined
def cut_in(
    at_s: Vector, after: Indexes, before: Indexes, used: Matrix, steps: int, step: int, time_s: float
) -> int:  # fmt: skip
    """The step that begins at this time, before which `step` is the last; `steps`, if it is a new one."""
    following = after[step]
    if following >= 0 and at_s[following] == time_s:
        return int(following)
    at_s[steps] = time_s
    after[step], before[steps], after[steps] = steps, step, following
    if following >= 0:
        before[following] = steps
    for resource in range(used.shape[1]):
        used[steps, resource] = used[step, resource]
    return steps


@inlined
def take_in(
    at_s: Vector, after: Indexes, before: Indexes, used: Matrix, steps: int, step: int, start_s: float, end_s: float,
    demand: Matrix, group: int, tasks: int,
) -> tuple[int, int]:  # fmt: skip
    """So many tasks are at work between these times; how many steps there are then, and the one at the start. `step`:
    one nearby."""
    first = cut_in(at_s, after, before, used, steps, seek(at_s, after, before, step, start_s), start_s)
    steps = max(steps, first + 1)
    last = cut_in(at_s, after, before, used, steps, seek(at_s, after, before, first, end_s), end_s)
    steps = max(steps, last + 1)
    step = first
    while step != last:
        for resource in range(used.shape[1]):
            used[step, resource] += tasks * demand[group, resource]
        step = after[step]
    return steps, first


@inlined
def latest_in(
    at_s: Vector, before: Indexes, used: Matrix, step: int, cap: Vector, demand: Matrix, group: int,
    duration_s: float, from_s: float, end_s: float,
) -> tuple[float, float, int]:  # fmt: skip
    """The latest start of a task that ends by `end_s`, where there is room: no earlier than `from_s`. When it, or else
    whatever may be found earlier, ends at the latest; and the last step before that. `step`: the last before `end_s`.

    While more and more is taken from the chain, the next search for a task of this demand may begin there."""
    begin = step
    while step >= 0 and end_s - duration_s > from_s + ROUNDING:
        has_room = True
        for resource in range(used.shape[1]):
            if used[step, resource] + demand[group, resource] > cap[resource] + ROUNDING:
                has_room = False
                break
        if not has_room:
            end_s, begin = at_s[step], before[step]
        elif end_s - duration_s >= at_s[step] - ROUNDING:
            return end_s - duration_s, end_s, begin
        step = before[step]
    return from_s, end_s, begin


@inlined
def room_in(
    at_s: Vector, after: Indexes, before: Indexes, used: Matrix, step: int, cap: Vector, demand: Matrix, group: int,
    start_s: float, end_s: float, peak: Vector,
) -> int:  # fmt: skip
    """How many such tasks have room between these times. `step`: one nearby. `peak`: overwritten; a number for each
    resource, the most that is used then."""
    step = seek(at_s, after, before, step, start_s + ROUNDING)
    if after[step] >= 0 and at_s[after[step]] <= start_s + ROUNDING:
        step = after[step]
    for resource in range(used.shape[1]):
        peak[resource] = used[step, resource]
    step = after[step]
    while step >= 0 and at_s[step] < end_s - ROUNDING:
        for resource in range(used.shape[1]):
            if used[step, resource] > peak[resource]:  # noqa: PLR1730  (the compiled `max` asks for NaN)
                peak[resource] = used[step, resource]
        step = after[step]
    most = 1_000_000_000
    for resource in range(used.shape[1]):
        if demand[group, resource] > 0:
            left = (cap[resource] + ROUNDING - peak[resource]) / demand[group, resource]
            most = min(most, max(0, int(left + ROUNDING)))
    return most
