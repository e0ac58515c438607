"""What was aimed at in each figure, and whether its rows meet that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.dataflow import peers
from benchmarks.dataflow.fig10 import WRITING
from benchmarks.flow.outcome import Row, Target, at_least, at_most


def _where(rows: Sequence[Row], **values: object) -> Iterator[Row]:
    return (row for row in rows if all(row.get(key) == value for key, value in values.items()))


def _cell(rows: Sequence[Row], column: str, **values: object) -> float | None:
    """Of the one row with these values; None if there is none, or it has no number."""
    found: list[Any] = [row.get(column) for row in _where(rows, **values)]
    return None if len(found) != 1 or found[0] is None else float(found[0])


def canary_table_1(rows: Sequence[Row]) -> list[Target]:
    of_paper = 67.7
    return [
        at_most("core time a row of stages, the paper's C++ 67.7 ns", _cell(rows, "core_ns_a_row", style="stages"),
                of_paper, " ns"),
        at_most("stages to the same by hand in numpy", _cell(rows, "core_ns_a_row", style="numpy by hand") and
                1 / float(_cell(rows, "to_stages", style="numpy by hand") or 1), 1.1, " ×"),
    ]  # fmt: skip


def canary_fig_4(rows: Sequence[Row]) -> list[Target]:
    made = []
    for count in (4, 10):
        ns = _cell(rows, "scheduling_ns", partitions=count, task="no-op")
        made += [
            at_most(f"scheduling a task, {count} partitions: 735 ns", ns, 735, " ns"),
            at_most(f"of a 1 ms task, {count} partitions: 0.1 %", None if ns is None else ns / 1e4, 0.1, " %"),
        ]
    rate = _cell(rows, "tasks_per_cpu_s", partitions=10, task="6.6 µs")
    share = _cell(rows, "share_%", partitions=10, task="6.6 µs")
    made += [
        at_least("tasks of 6.6 µs a CPU second, 10 partitions: 136,000", rate, 136_000),
        at_most("of a 6.6 µs task, 10 partitions, by difference: 10 %", share, 10, " %"),
    ]
    return made


def canary_fig_5(rows: Sequence[Row]) -> list[Target]:
    one = _cell(rows, "ns_a_task", workers=1)
    made = []
    for count in (16, 64, 1_000):
        many = _cell(rows, "ns_a_task", workers=count)
        if one and many:
            made.append(at_most(f"CPU per task, {count:,} workers to one: flat (1.15)", many / one, 1.15, " ×"))
    reports = {row["reports_a_signal"] for row in rows}
    made.append(
        Target("messages to the controller, by workers: none but the signal's", f"{sorted(reports)}", reports == {1})
    )
    return made


def canary_fig_5_live(rows: Sequence[Row]) -> list[Target]:
    most = max(rows, key=lambda row: float(row["workers"]))
    text = f"CPU per task, {most['workers']} processes to one: flat (1.15)"
    return [at_most(text, float(most["to_one_worker"]), 1.15, " ×")]


def canary_fig_6(rows: Sequence[Row]) -> list[Target]:
    made = []
    for row in rows:
        if row["paper_s"] is not None:
            text = f"{row['application']}, {row['cores']:,} cores: no longer than the paper's {row['paper_s']} s"
            made.append(at_most(text, float(row["iteration_s"]), float(row["paper_s"]), " s"))
    return made


def canary_fig_9(rows: Sequence[Row]) -> list[Target]:
    made = [
        Target("mirrors of a vertex: at most 2 √P", "all rows" if fits else "more", fits)
        for fits in [all(row["mirrors_of_a_vertex"] <= row["mirrors_at_most"] for row in rows)]
    ]
    best = min((float(row["to_one_partition"]), int(row["partitions"])) for row in rows)
    text = "CPU time of an iteration to that with one partition, at best (paper: 0.67 with 4)"
    return [*made, Target(text, f"{best[0]:.2f} × with {best[1]}", best[0] <= 0.67)]


def templates_table_1(rows: Sequence[Row]) -> list[Target]:
    made = []
    for row in _where(rows, plane="templates"):
        if row["spark_s"] is not None:
            text = f"{row['code']}, {row['nodes']} nodes: below Spark's {row['spark_s']:g} s"
            made.append(at_most(text, float(row["iteration_s"]), float(row["spark_s"]), " s"))
    return made


def templates_table_3(rows: Sequence[Row]) -> list[Target]:
    return [
        at_most("installation in all: 25 µs a task", _cell(rows, "value", cost="in all"), 25, " µs"),
        at_most("first iteration slower: 39 %", _cell(rows, "value", cost="first iteration slower"), 39, " %"),
    ]


def templates_table_4(rows: Sequence[Row]) -> list[Target]:
    names = {"no templates": 10, "controller template": 5}
    each = _cell(rows, "us_a_task", plane="no templates")
    made = [at_most("central dispatch: 40 µs of CPU a task", each, 40, " µs")]
    return made + [
        at_least(f"{name}, to both templates: {aim} ×", _cell(rows, "ratio", plane=name), aim, " ×")
        for name, aim in names.items()
    ]


def templates_fig_7(rows: Sequence[Row]) -> list[Target]:
    planes = {row["plane"]: row for row in _where(rows, nodes=100, application="logistic regression")}
    if not planes:
        return []
    ratio = float(planes["central"]["iteration_s"]) / float(planes["templates"]["iteration_s"])
    return [at_least("central to templates, 100 nodes (paper: 4 to 8, Spark to Nimbus)", ratio, 4, " ×")]


def templates_fig_8(rows: Sequence[Row]) -> list[Target]:
    rate = _cell(rows, "tasks_a_s", plane="templates", nodes=100)
    return [] if rate is None else [at_least("tasks a second, 100 nodes: almost 200,000", rate, 190_000)]


def templates_fig_9(rows: Sequence[Row]) -> list[Target]:
    again = {row["halves_installed_in_phase"] for row in rows if "again" in str(row["phase"])}
    return [Target("halves installed for a placement that was there before", f"{sorted(again)}", again == {0})]


def templates_fig_10(rows: Sequence[Row]) -> list[Target]:
    return [at_least("median task of the stages that write fields: 5 ms", _cell(rows, "ms", of=WRITING), 5, " ms")]


def messages(rows: Sequence[Row]) -> list[Target]:
    fits = all(row["messages"] == row["formula"] for row in rows)
    made = [Target("messages: central 2 T, templates 2 W", "all rows" if fits else "others", fits)]
    dearest = [row for row in rows if row["aim_us_a_worker"] is not None and int(row["workers"]) > 1]
    most = max((float(row["us_a_worker"]) for row in dearest), default=None)
    return [*made, at_most("CPU of the controller: 20 µs a worker", most, 20, " µs")]


def validation(rows: Sequence[Row]) -> list[Target]:
    aimed = [row for row in rows if row["aim_ms"] is not None]
    return [at_most(f"{row['what']}: 1 ms", float(row["ms"]), float(row["aim_ms"]), " ms") for row in aimed]


def compiled(rows: Sequence[Row]) -> list[Target]:
    best = max((float(row["tasks_per_cpu_s"]) for row in rows if row["aim_tasks_per_cpu_s"] is not None), default=None)
    return [at_least("compiled no-ops a CPU second: 50 M", best, 50e6)]


def fig_12(rows: Sequence[Row]) -> list[Target]:
    made = [at_most("CPU to that of one rank by hand for MPI: 1.15", _cell(rows, "cpu to mpi", who="inline", blocks=1),
                    1.15, " ×")]  # fmt: skip
    for plane in ("local", "templates"):
        for kind in ("cpu", "wall"):
            ratio = _cell(rows, f"{kind} to mpi", who=plane)
            made.append(at_most(f"{plane} on two workers, {kind} to that of two ranks: 1.15", ratio, 1.15, " ×"))
    return made


def live(rows: Sequence[Row]) -> list[Target]:
    by_plane = {plane: _cell(rows, "cpu us a task", loop="no-ops", plane=plane) for plane in ("central", "templates")}
    central, templates = by_plane["central"], by_plane["templates"]
    ratio = None if central is None or not templates else central / templates
    return [
        at_most("central dispatch of a task, CPU of all processes: 40 µs", central, 40, " µs"),
        at_least("central dispatch to templates: 10 times", ratio, 10, " ×"),
    ]


def balance(rows: Sequence[Row]) -> list[Target]:
    dear = [float(row["beside the best"]) for row in rows if row["load"] == "one costs 4 times"]
    even = [float(row["moves"]) for row in rows if str(row["load"]).startswith("even")]
    return [
        at_most("a partition that costs 4 times, after 5 s, to the best placement: 1.15", max(dear), 1.15, " ×"),
        at_most("moves where load is even", max(even), 0, ""),
    ]


def moves(rows: Sequence[Row]) -> list[Target]:
    ratio = _cell(rows, "during × without", time="wall")
    return [at_most("iterations while 128 MB move to others: 1.2", ratio, 1.2, " ×")]


def shares(rows: Sequence[Row]) -> list[Target]:
    furthest = max((100 * float(row["furthest (of due)"]) for row in rows), default=None)
    return [at_most("shares of 10 s, off what is due: 10 %", furthest, 10, " %")]


def of_peers(rows: Sequence[Row]) -> list[Target]:
    ours = "sparrow local"
    texts = {peers.NO_OPS: "an iteration of 8 × 3 no-ops: 0.3 ms", peers.SIGNAL: "a signal between busy workers: 10 µs"}
    made = [
        at_most(text, _cell(rows, "wall_us", what=what, who=ours), peers.AIM_US[what], " µs")
        for what, text in texts.items()
    ]
    idle = _cell(rows, "idle_%", what=peers.IDLE, who=ours)
    return [*made, at_most("idle: 1 % of a core", idle, peers.IDLE_AIM_PERCENT, " %")]
