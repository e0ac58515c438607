"""The stages of TPC-H's queries as they were measured: what `loadgen dags record` writes, and jobs are made of."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from loadgen.dags.operators import KINDS
from sparrow_py.errors import InvalidOption

PROFILE = Path(__file__).parents[1] / "profiles" / "tpch-dags.json"
"""The profile that comes with this package."""
Name = Annotated[str, Meta(min_length=1, max_length=100)]
Count = Annotated[int, Meta(ge=0, le=10**15)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class MeasuredStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator of a query, at each of the profile's two scales. cpu_s: CPU time. memory_bytes: that it took beside
    its input, its output included."""

    name: Name
    kind: Name
    after: tuple[Name, ...]
    rows_out: tuple[Count, Count]
    bytes_in: tuple[Count, Count]
    bytes_out: tuple[Count, Count]
    cpu_s: tuple[Seconds, Seconds]
    memory_bytes: tuple[Count, Count]

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """In and out."""
        return self.bytes_in[0] + self.bytes_out[0], self.bytes_in[1] + self.bytes_out[1]

    @property
    def cpu_s_per_byte(self) -> float:
        """Of what it moves, without what it takes for no rows at all."""
        small, large = self.moved_bytes
        return max(0.0, self.cpu_s[1] - self.cpu_s[0]) / (large - small) if large > small else 0.0


class MeasuredQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query's stages, each after those that it reads."""

    stages: Annotated[tuple[MeasuredStage, ...], Meta(min_length=1, max_length=100)]


class TpchDags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured queries. source: the data, the machine and the engine; its `scales` are those of the stages."""

    source: dict[str, Any]
    queries: Annotated[dict[Name, MeasuredQuery], Meta(min_length=1)]

    @property
    def scales(self) -> tuple[float, float]:
        """The smaller and the larger one."""
        small, large = self.source["scales"]
        return float(small), float(large)


def at_scale(both: tuple[int, int], scales: tuple[float, float], scale: float) -> float:
    """What was counted at two scales, at another: it grows with the scale as it did between them, from the one and
    the other by the power of the scale that leads from this to that, which is from 0 (the same at each) to 1."""
    small, large = both
    if not large:
        return 0.0
    power = math.log(large / max(small, 1)) / math.log(scales[1] / scales[0])
    return large * float((scale / scales[1]) ** min(1.0, max(0.0, power)))


def read_tpch_dags(path: Path | None = None) -> TpchDags:
    """The profile in a file, or the one that comes with this package; `InvalidOption` names what is wrong with it."""
    path = path or PROFILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidOption("recorded", str(path), f"a readable profile of queries ({error.strerror})") from None
    try:
        profile = msgspec.json.decode(text, type=TpchDags)
        small, large = msgspec.convert(profile.source.get("scales"), tuple[float, float])
    except msgspec.MsgspecError as error:
        raise InvalidOption("recorded", str(path), f"a profile that `loadgen dags record` wrote ({error})") from None
    if not 0 < small < large < math.inf:
        raise InvalidOption(f"{path} scales", [small, large], "two numbers above 0, the larger one last")
    for name, query in profile.queries.items():
        _check(f"{path} {name}", query)
    return profile


def _check(where: str, query: MeasuredQuery) -> None:
    before: set[str] = set()
    for stage in query.stages:
        if stage.kind not in KINDS:
            raise InvalidOption(f"{where} {stage.name} kind", stage.kind, ", ".join(KINDS))
        if stage.name in before:
            raise InvalidOption(f"{where} {stage.name}", stage.name, "a name that no other stage of the query has")
        if not before.issuperset(stage.after) or len(set(stage.after)) < len(stage.after):
            raise InvalidOption(f"{where} {stage.name} after", list(stage.after), "stages that stand before it, once")
        before.add(stage.name)


def as_json(profile: TpchDags) -> bytes:
    """JSON with a line for each stage."""
    queries = []
    for name, query in profile.queries.items():
        stages = b",\n".join(b"   " + msgspec.json.encode(stage) for stage in query.stages)
        queries.append(b'  "' + name.encode() + b'": {"stages": [\n' + stages + b"\n  ]}")
    return (
        b'{"source": ' + msgspec.json.encode(profile.source) + b',\n "queries": {\n' + b",\n".join(queries) + b"\n }}\n"
    )
