"""Shallow water in a basin: a drop falls over a sea mount, and its waves run to the walls.

    python examples/dataflow/water.py [--check] [--size N] [--blocks ROWS COLUMNS] [--frames N] [--compiled]

The grid is cut into blocks of rows and columns, which exchange the cells at their edges by scatters and gathers. Three
loops are nested: frames; time steps, as long as depth and speed allow; and the conjugate gradients that solve for the
water's surface at a step's end, until the residual is small. Water flows through the faces of cells, so that mass stays
the same to rounding. `--check` compares the end with that of the same algorithm in plain numpy on one grid.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow

Array = np.ndarray[Any, Any]
GRAVITY = 9.81  # m/s²; cells are squares of 1 m.
DEPTH = 10.0  # m
FRAME_S = 0.4
WAVE_CELLS = 1.5  # How far waves run in a step, at most.
FLOW_CELLS = 0.2  # And how far water flows.
RESIDUAL = 1e-10  # Of the first one, where a solve ends.
SOLVE_MAX = 500
PICTURE = (18, 54)  # Characters of the picture at the end.
SHADES = "≡=-· ░▒▓█"

# ---- the grid and its blocks -------------------------------------------------------------------------
#
# A field of a block has a ring of cells around the block's own: those of its neighbours, or beyond a wall. u[i, j] is
# the speed through the left face of cell (i, j), v[i, j] that through its upper face.


@dataclass(frozen=True)
class Grid:
    """Cells of the whole, in blocks; blocks are numbered row after row."""

    size: int
    rows: int = 1
    columns: int = 1
    starts: tuple[Array, Array] = field(init=False)

    def __post_init__(self) -> None:
        ends = (np.linspace(0, self.size, self.rows + 1), np.linspace(0, self.size, self.columns + 1))
        object.__setattr__(self, "starts", tuple(end.astype(np.int64) for end in ends))

    @property
    def blocks(self) -> int:
        return self.rows * self.columns

    def cells(self, block: int) -> tuple[int, int, int, int]:
        """The first row, the row after the last, the first column, and the column after the last."""
        row, column = divmod(block, self.columns)
        first_row, end_row = self.starts[0][row : row + 2]
        first_column, end_column = self.starts[1][column : column + 2]
        return int(first_row), int(end_row), int(first_column), int(end_column)

    def shape(self, block: int) -> tuple[int, int]:
        """That of a block's fields, the ring included."""
        top, bottom, left, right = self.cells(block)
        return bottom - top + 2, right - left + 2

    def places(self) -> Array:
        """For each block its row and column and how many there are: all that a task has to know of the others."""
        return np.array([[*divmod(block, self.columns), self.rows, self.columns] for block in range(self.blocks)])


def water_at_start(grid: Grid, block: int) -> tuple[Array, Array]:
    """The bed's height above its lowest, and the water's depth."""
    top, bottom, left, right = grid.cells(block)
    y, x = np.mgrid[top - 1 : bottom + 1, left - 1 : right + 1] / grid.size
    bed = 0.6 * DEPTH * np.exp(-(((x - 0.65) ** 2 + (y - 0.4) ** 2) / 0.01))
    drop = 0.3 * DEPTH * np.exp(-(((x - 0.4) ** 2 + (y - 0.55) ** 2) / 0.002))
    return bed, DEPTH + drop - bed


def neighbours(place: Array) -> Iterator[tuple[int, int, int]]:
    """Blocks at the sides and corners in ascending order, and where they are: up and left -1, down and right 1."""
    row, column, rows, columns = place.tolist()
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            if (down or right) and 0 <= row + down < rows and 0 <= column + right < columns:
                yield (row + down) * columns + column + right, down, right


def own(to: int) -> slice:
    """The block's own cells next to a neighbour."""
    return (slice(1, 2), slice(1, -1), slice(-2, -1))[to + 1]


def ring(to: int) -> slice:
    """Where in the ring the neighbour's cells are."""
    return (slice(0, 1), slice(1, -1), slice(-1, None))[to + 1]


def edges(place: Array, *fields: Array) -> Iterator[tuple[int, Array]]:
    """What each neighbour is sent."""
    for block, down, right in neighbours(place):
        yield block, np.stack([each[own(down), own(right)] for each in fields])


def fill_ring(chunks: list[Array], place: Array, *fields: Array) -> None:
    """Take what the neighbours sent, which comes in their order; beyond a wall is what is before it."""
    for (_, down, right), chunk in zip(neighbours(place), chunks, strict=True):
        for mine, theirs in zip(fields, chunk, strict=True):
            mine[ring(down), ring(right)] = theirs
    row, column, rows, columns = place.tolist()
    for mine in fields:
        if row == 0:
            mine[0] = mine[1]
        if row == rows - 1:
            mine[-1] = mine[-2]
        if column == 0:
            mine[:, 0] = mine[:, 1]
        if column == columns - 1:
            mine[:, -1] = mine[:, -2]


def close_walls(place: Array, across: Array, down: Array) -> None:
    """Nothing flows through a wall: faces there are 0."""
    row, column, rows, columns = place.tolist()
    if column == 0:
        across[:, 1] = 0
    if column == columns - 1:
        across[:, -1] = 0
    if row == 0:
        down[1] = 0
    if row == rows - 1:
        down[-1] = 0


def send_one(place: Array, a: Array) -> Iterator[tuple[int, Array]]:
    return edges(place[0], a)


def take_one(chunks: list[Array], place: Array, a: Array) -> None:
    fill_ring(chunks, place[0], a)


def send_three(place: Array, h: Array, u: Array, v: Array) -> Iterator[tuple[int, Array]]:
    return edges(place[0], h, u, v)


def take_three(chunks: list[Array], place: Array, h: Array, u: Array, v: Array) -> None:
    fill_ring(chunks, place[0], h, u, v)
    close_walls(place[0], u, v)


def send_four(place: Array, us: Array, vs: Array, hu: Array, hv: Array) -> Iterator[tuple[int, Array]]:
    return edges(place[0], us, vs, hu, hv)


def take_four(chunks: list[Array], place: Array, us: Array, vs: Array, hu: Array, hv: Array) -> None:
    fill_ring(chunks, place[0], us, vs, hu, hv)
    close_walls(place[0], us, vs)
    close_walls(place[0], hu, hv)


EXCHANGES = {1: (send_one, take_one), 3: (send_three, take_three), 4: (send_four, take_four)}
"""Functions that exchange so many fields."""

# ---- a time step -------------------------------------------------------------------------------------


def limits(h: Array, u: Array, v: Array, most: Array) -> None:
    """What limits a step: the depth, and the speed."""
    inner = (slice(1, -1), slice(1, -1))
    most[0] = h[inner].max()
    most[1] = max(u[inner].max(), -u[inner].min(), v[inner].max(), -v[inner].min())


def step_s(most: Array, left_s: float) -> float:
    """How long the next step is, so that those of a frame are about equal."""
    longest = min(WAVE_CELLS / np.sqrt(GRAVITY * most[0]), FLOW_CELLS / max(most[1], 1e-9))
    return float(left_s / np.ceil(left_s / longest))


def carry_across(u: Array, v: Array, dt: Array, carried: Array) -> None:
    """u after it was carried along by the flow, upwind."""
    mine = u[1:-1, 1:-1]
    other = 0.25 * (v[1:-1, :-2] + v[1:-1, 1:-1] + v[2:, :-2] + v[2:, 1:-1])
    carried[1:-1, 1:-1] = mine - dt[0] * (
        np.maximum(mine, 0.0) * (mine - u[1:-1, :-2])
        + np.minimum(mine, 0.0) * (u[1:-1, 2:] - mine)
        + np.maximum(other, 0.0) * (mine - u[:-2, 1:-1])
        + np.minimum(other, 0.0) * (u[2:, 1:-1] - mine)
    )


def carry_down(u: Array, v: Array, dt: Array, carried: Array) -> None:
    """The same of v."""
    mine = v[1:-1, 1:-1]
    other = 0.25 * (u[:-2, 1:-1] + u[1:-1, 1:-1] + u[:-2, 2:] + u[1:-1, 2:])
    carried[1:-1, 1:-1] = mine - dt[0] * (
        np.maximum(other, 0.0) * (mine - v[1:-1, :-2])
        + np.minimum(other, 0.0) * (v[1:-1, 2:] - mine)
        + np.maximum(mine, 0.0) * (mine - v[:-2, 1:-1])
        + np.minimum(mine, 0.0) * (v[2:, 1:-1] - mine)
    )


def depth_at_faces(h: Array, us: Array, vs: Array, hu: Array, hv: Array) -> None:
    """The depth at faces is that of the cell from where water comes."""
    hu[1:-1, 1:-1] = np.where(us[1:-1, 1:-1] > 0.0, h[1:-1, :-2], h[1:-1, 1:-1])
    hv[1:-1, 1:-1] = np.where(vs[1:-1, 1:-1] > 0.0, h[:-2, 1:-1], h[1:-1, 1:-1])


def spread(x: Array, hu: Array, hv: Array) -> Any:
    """What flows out of cells if x is the surface's height, but for a factor: minus the divergence of H ∇ x."""
    middle = x[1:-1, 1:-1]
    return (
        hu[1:-1, 1:-1] * (middle - x[1:-1, :-2])
        - hu[1:-1, 2:] * (x[1:-1, 2:] - middle)
        + hv[1:-1, 1:-1] * (middle - x[:-2, 1:-1])
        - hv[2:, 1:-1] * (x[2:, 1:-1] - middle)
    )


def start_solve(
    h: Array, bed: Array, us: Array, vs: Array, hu: Array, hv: Array, dt: Array, x: Array, r: Array, p: Array
) -> None:
    """The surface now, as the first guess, and its residual. To be solved: x + g dt² spread(x) = surface - dt outflow,
    where the outflow is that of the carried speeds."""
    x[:] = h + bed
    outflow = (
        hu[1:-1, 2:] * us[1:-1, 2:]
        - hu[1:-1, 1:-1] * us[1:-1, 1:-1]
        + hv[2:, 1:-1] * vs[2:, 1:-1]
        - hv[1:-1, 1:-1] * vs[1:-1, 1:-1]
    )
    r[:] = -dt[0] * outflow - GRAVITY * dt[0] ** 2 * spread(x, hu, hv)
    p[1:-1, 1:-1] = r


def apply(p: Array, hu: Array, hv: Array, dt: Array, q: Array) -> None:
    """The system's matrix times p."""
    q[:] = p[1:-1, 1:-1] + GRAVITY * dt[0] ** 2 * spread(p, hu, hv)


def dot(a: Array, b: Array, into: Array) -> None:
    into[0] = np.einsum("ij,ij->", a, b)


def improve(p: Array, q: Array, alpha: Array, x: Array, r: Array) -> None:
    """A step along the direction p."""
    x[1:-1, 1:-1] += alpha[0] * p[1:-1, 1:-1]
    r -= alpha[0] * q


def turn(r: Array, beta: Array, p: Array) -> None:
    """The next direction."""
    p[1:-1, 1:-1] = r + beta[0] * p[1:-1, 1:-1]


def apply_by_loops(p: Array, hu: Array, hv: Array, dt: Array, q: Array) -> None:
    """`apply` for machine code, which makes no arrays on the way; bit by bit the same."""
    factor = GRAVITY * dt[0] ** 2
    for i in range(1, p.shape[0] - 1):
        for j in range(1, p.shape[1] - 1):
            middle = p[i, j]
            spread = hu[i, j] * (middle - p[i, j - 1]) - hu[i, j + 1] * (p[i, j + 1] - middle)
            spread = spread + hv[i, j] * (middle - p[i - 1, j]) - hv[i + 1, j] * (p[i + 1, j] - middle)
            q[i - 1, j - 1] = middle + factor * spread


def improve_by_loops(p: Array, q: Array, alpha: Array, x: Array, r: Array) -> None:
    """`improve` for machine code."""
    for i in range(r.shape[0]):
        for j in range(r.shape[1]):
            x[i + 1, j + 1] += alpha[0] * p[i + 1, j + 1]
            r[i, j] -= alpha[0] * q[i, j]


def turn_by_loops(r: Array, beta: Array, p: Array) -> None:
    """`turn` for machine code."""
    for i in range(r.shape[0]):
        for j in range(r.shape[1]):
            p[i + 1, j + 1] = r[i, j] + beta[0] * p[i + 1, j + 1]


def flow(x: Array, hu: Array, hv: Array, dt: Array, us: Array, vs: Array, u: Array, v: Array, h: Array) -> None:
    """Speeds after the surface's slope, and what flows with them. Two blocks compute the flow through a common face
    from the same numbers, so what leaves one enters the other."""
    u[1:-1, 1:] = np.where(hu[1:-1, 1:] > 0.0, us[1:-1, 1:] - GRAVITY * dt[0] * (x[1:-1, 1:] - x[1:-1, :-1]), 0.0)
    v[1:, 1:-1] = np.where(hv[1:, 1:-1] > 0.0, vs[1:, 1:-1] - GRAVITY * dt[0] * (x[1:, 1:-1] - x[:-1, 1:-1]), 0.0)
    h[1:-1, 1:-1] -= dt[0] * (
        hu[1:-1, 2:] * u[1:-1, 2:]
        - hu[1:-1, 1:-1] * u[1:-1, 1:-1]
        + hv[2:, 1:-1] * v[2:, 1:-1]
        - hv[1:-1, 1:-1] * v[1:-1, 1:-1]
    )


def is_unsolved(residual: Array) -> bool:
    """Of the squared residual now, that at the solve's start, and iterations."""
    return bool(residual[0] > RESIDUAL**2 * residual[1] and residual[2] < SOLVE_MAX)


# ---- the program -------------------------------------------------------------------------------------


@dataclass
class Water:
    """What a run ends with."""

    surface: Array
    """The surface's height above the lowest bed, of the whole grid; m."""
    mass: list[float]
    """At the start and at the end of each frame, m³."""
    steps: list[int]
    iterations: list[int]
    """Of each frame, all steps' together."""


def simulate(grid: Grid, frames: int, *, compiled: bool = False, **options: Any) -> Water:
    """Water after so many frames; `options` are those of `Dataflow`."""
    blocks, shapes = grid.blocks, [grid.shape(block) for block in range(grid.blocks)]
    inner = [(rows - 2, columns - 2) for rows, columns in shapes]
    with Dataflow(partitions=blocks, **options) as df:
        place = df.partition(grid.places(), name="place")
        bed = df.load(lambda block: water_at_start(grid, block)[0], name="bed")
        h = df.load(lambda block: water_at_start(grid, block)[1], name="depth")
        u, v = df.empty(shapes, name="u"), df.empty(shapes, name="v")
        us, vs = df.empty(shapes, name="carried-u"), df.empty(shapes, name="carried-v")
        hu, hv = df.empty(shapes, name="depth-at-u"), df.empty(shapes, name="depth-at-v")
        x, p = df.empty(shapes, name="surface"), df.empty(shapes, name="direction")
        r, q = df.empty(inner, name="residual"), df.empty(inner, name="product")
        most, part = df.empty(2, name="most"), df.empty(1, name="part")
        limit, clock = df.single(np.zeros(2), name="limit"), df.single(np.zeros(2), name="clock")  # Time and steps.
        total, residual = df.single(np.zeros(1), name="total"), df.single(np.zeros(3), name="residual-now")
        record = df.single(np.zeros((frames + 1, 3)), name="record")
        solved = df.single(np.zeros(1), name="iterations")
        whole = df.single(np.zeros((grid.size, grid.size)), name="whole")
        dt, alpha, beta = (df.replicate(np.zeros(1), name=name) for name in ("dt", "alpha", "beta"))

        def exchange(name: str, *fields: Any) -> Callable[[], None]:
            """Fill the rings of fields."""
            sends, takes = EXCHANGES[len(fields)]
            send = df.scatter(reads=[place, *fields], to=place, name=f"send-{name}")(sends)
            take = df.gather(send, reads=[place], writes=fields, name=f"take-{name}")(takes)

            def call() -> None:
                send()
                take()

            return call

        exchange_state, exchange_faces = exchange("state", h, u, v), exchange("faces", us, vs, hu, hv)
        exchange_direction, exchange_surface = exchange("direction", p), exchange("surface", x)
        find_limits = df.stage(reads=[h, u, v], writes=[most])(limits)
        find_limit = df.reduce(most, into=limit, op=np.maximum, name="limit-of-all")
        carry_u = df.stage(reads=[u, v, dt], writes=[us])(carry_across)
        carry_v = df.stage(reads=[u, v, dt], writes=[vs])(carry_down)
        depths = df.stage(reads=[h, us, vs], writes=[hu, hv])(depth_at_faces)
        begin = df.stage(reads=[h, bed, us, vs, hu, hv, dt], writes=[x, r, p])(start_solve)
        solver = (apply_by_loops, improve_by_loops, turn_by_loops) if compiled else (apply, improve, turn)
        multiply = df.stage(reads=[p, hu, hv, dt], writes=[q], compiled=compiled)(solver[0])
        improve_guess = df.stage(reads=[p, q, alpha], writes=[x, r], compiled=compiled)(solver[1])
        turn_on = df.stage(reads=[r, beta], writes=[p], compiled=compiled)(solver[2])
        along = df.stage(reads=[p, q], writes=[part], name="along")(lambda p, q, part: dot(p[1:-1, 1:-1], q, part))
        remaining = df.stage(reads=[r], writes=[part], name="remaining")(lambda r, part: dot(r, r, part))
        weigh = df.stage(reads=[h], writes=[part], name="weigh")(lambda h, part: part.fill(h[1:-1, 1:-1].sum()))
        add = df.reduce(part, into=total, op=np.add, name="sum")
        flow_on = df.stage(reads=[x, hu, hv, dt, us, vs], writes=[u, v, h])(flow)

        @df.stage(reads=[limit], writes=[clock, dt])
        def choose_step(limit: Array, clock: Array, dt: Array, *, until_s: float) -> None:
            dt[0] = step_s(limit, until_s - clock[0])
            clock += dt[0], 1

        @df.stage(reads=[total], writes=[residual])
        def first_residual(total: Array, residual: Array) -> None:
            residual[:] = total[0], total[0], 0

        @df.stage(reads=[total, residual], writes=[alpha])
        def step_length(total: Array, residual: Array, alpha: Array) -> None:
            alpha[0] = residual[0] / total[0]

        @df.stage(reads=[total], writes=[residual, beta, solved])
        def next_residual(total: Array, residual: Array, beta: Array, solved: Array) -> None:
            beta[0] = total[0] / residual[0]
            residual[:] = total[0], residual[1], residual[2] + 1
            solved += 1

        @df.stage(reads=[total, clock, solved], writes=[record])
        def note(total: Array, clock: Array, solved: Array, record: Array, *, frame: int) -> None:
            record[frame] = total[0], clock[1], solved[0]

        @df.scatter(reads=[h, bed], to=whole)
        def send_whole(h: Array, bed: Array) -> Any:
            yield 0, (h + bed)[1:-1, 1:-1]

        @df.gather(send_whole, writes=[whole])
        def take_whole(chunks: list[Array], whole: Array) -> None:
            for block, chunk in enumerate(chunks):
                top, bottom, left, right = grid.cells(block)
                whole[top:bottom, left:right] = chunk

        @df.signal(on=residual)
        def unsolved(residual: Array) -> Any:
            return is_unsolved(residual)

        @df.signal(on=clock)
        def in_frame(clock: Array, *, until_s: float) -> Any:
            return clock[0] < until_s - 1e-9

        def note_frame(frame: int) -> None:
            weigh()
            add()
            note(frame=frame)

        def solve() -> None:
            """Conjugate gradients for the surface at the step's end."""
            begin()
            remaining()
            add()
            first_residual()
            while unsolved():
                exchange_direction()
                multiply()
                along()
                add()
                step_length()
                improve_guess()
                remaining()
                add()
                next_residual()
                turn_on()

        def step(until_s: float) -> None:
            find_limits()
            find_limit()
            choose_step(until_s=until_s)
            carry_u()
            carry_v()
            depths()
            exchange_faces()
            solve()
            exchange_surface()
            flow_on()
            exchange_state()

        def program() -> Any:
            exchange_state()
            note_frame(0)
            for frame in range(1, frames + 1):
                while in_frame(until_s=frame * FRAME_S):
                    step(frame * FRAME_S)
                note_frame(frame)
            send_whole()
            take_whole()
            return whole, record

        surface, notes = df.run(program)
    return Water(surface, notes[:, 0].tolist(), np.diff(notes[:, 1]).tolist(), np.diff(notes[:, 2]).tolist())


# ---- the same in plain numpy -------------------------------------------------------------------------


class Block:
    """A block of the grid, by default all of it, and what happens to it in a run without stages."""

    def __init__(self, grid: Grid, block: int = 0) -> None:
        self.place = grid.places()[block : block + 1]
        self.bed, self.h = water_at_start(grid, block)
        shape = grid.shape(block)
        self.u, self.v, self.us, self.vs, self.hu, self.hv, self.x, self.p = (np.zeros(shape) for _ in range(8))
        self.r, self.q = (np.zeros((shape[0] - 2, shape[1] - 2)) for _ in range(2))
        self.dt, self.one, self.most = np.zeros(1), np.zeros(1), np.zeros(2)
        self.iterations = 0

    def fill(self, take: Callable[..., None], *fields: Array) -> None:
        """Fill the rings of fields: the whole grid has walls alone."""
        take([], self.place, *fields)

    def dot(self, a: Array, b: Array) -> float:
        dot(a, b, self.one)
        return float(self.one[0])

    def find_limits(self) -> None:
        limits(self.h, self.u, self.v, self.most)

    def solve(self) -> None:
        start_solve(self.h, self.bed, self.us, self.vs, self.hu, self.hv, self.dt, self.x, self.r, self.p)
        first = self.dot(self.r, self.r)
        residual = np.array([first, first, 0])
        while is_unsolved(residual):
            self.fill(take_one, self.p)
            apply(self.p, self.hu, self.hv, self.dt, self.q)
            improve(self.p, self.q, residual[:1] / self.dot(self.p[1:-1, 1:-1], self.q), self.x, self.r)
            total = self.dot(self.r, self.r)
            turn(self.r, np.array([total / residual[0]]), self.p)
            residual[:] = total, first, residual[2] + 1
        self.iterations += int(residual[2])

    def step(self, left_s: float) -> float:
        """One time step; how long it was."""
        self.find_limits()
        self.dt[0] = step_s(self.most, left_s)
        carry_across(self.u, self.v, self.dt, self.us)
        carry_down(self.u, self.v, self.dt, self.vs)
        depth_at_faces(self.h, self.us, self.vs, self.hu, self.hv)
        self.fill(take_four, self.us, self.vs, self.hu, self.hv)
        self.solve()
        self.fill(take_one, self.x)
        flow(self.x, self.hu, self.hv, self.dt, self.us, self.vs, self.u, self.v, self.h)
        self.fill(take_three, self.h, self.u, self.v)
        return float(self.dt[0])

    def run(self, frames: int) -> int:
        """Until so many frames are over; how many steps that took."""
        now_s, steps = 0.0, 0
        self.fill(take_three, self.h, self.u, self.v)
        for frame in range(1, frames + 1):
            while now_s < frame * FRAME_S - 1e-9:
                now_s += self.step(frame * FRAME_S - now_s)
                steps += 1
        return steps


def in_numpy(size: int, frames: int) -> Array:
    """The surface after so many frames."""
    grid = Block(Grid(size))
    grid.run(frames)
    whole: Array = (grid.h + grid.bed)[1:-1, 1:-1]
    return whole


# ---- what one sees -----------------------------------------------------------------------------------


def picture(surface: Array) -> Iterator[str]:
    """The surface from above: crests are blocks, troughs lines."""
    rows, columns = (np.linspace(0, len(surface), count + 1).astype(int)[:-1] for count in PICTURE)
    seen = surface[np.ix_(rows, columns)] - DEPTH
    scale = max(float(np.abs(seen).max()), 1e-12)
    middle = (len(SHADES) - 1) / 2
    for row in seen:
        yield "".join(SHADES[round(middle + middle * value / scale)] for value in row)


def show(water: Water) -> None:
    """The surface at the end, and a line for each frame."""
    above, below = water.surface.max() - DEPTH, DEPTH - water.surface.min()
    print(
        f"the surface: {SHADES[-1]!r} is {above:.2f} m above the water at rest, the deepest trough {below:.2f} m below"
    )
    for line in picture(water.surface):
        print(f"  │{line}│")
    print("  frame   time   steps  iterations  change of mass")
    for frame, (steps, iterations) in enumerate(zip(water.steps, water.iterations, strict=True), start=1):
        change = water.mass[frame] / water.mass[0] - 1
        print(f"  {frame:5}  {frame * FRAME_S:4.1f} s  {steps:5.0f}  {iterations:10.0f}  {change:14.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare with plain numpy on one grid")
    parser.add_argument("--size", type=int, default=1800, help="cells in a row and in a column")
    parser.add_argument("--blocks", type=int, nargs=2, default=(2, 2), help="in a column and in a row of the grid")
    parser.add_argument("--frames", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="the solver's stages in machine code (needs numba)")
    parser.add_argument("--workers", type=int, help="how many are wanted")
    parser.add_argument("--plane", help="who decides which task runs where")
    options = parser.parse_args()
    grid = Grid(options.size, *options.blocks)
    then = time.perf_counter()
    water = simulate(
        grid, options.frames, compiled=options.compiled, workers=options.workers, plane=options.plane, progress=False
    )
    show(water)
    print(f"{options.size} × {options.size} cells in {grid.blocks} blocks: {time.perf_counter() - then:.2f} s")
    lost = np.abs(np.array(water.mass) / water.mass[0] - 1).max()
    if options.check:
        difference = np.abs(water.surface - in_numpy(options.size, options.frames)).max()
        print(f"largest difference from numpy: {difference:.1e} m; mass changed by {lost:.1e} of it")
        if not difference < 1e-9 or not lost < 1e-12:
            raise SystemExit("check failed: a difference below 1e-9 and the same mass to 1e-12 were expected")


if __name__ == "__main__":
    main()
