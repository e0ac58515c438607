"""Workloads in files: traces (`loadgen.traces`), and mixes of users as TOML.

A mix has `seconds` and a table `[[users]]` for each user with `user`, `load`, and if wanted `weight`, `tasks`,
`service` (the distribution), `mean_ms`, `alpha`, `per`, `constrained`, `replicas`, `regular`, and `rates`, a list of
[from_s, factor].
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from loadgen.arrivals import Rates
from loadgen.durations import Durations
from loadgen.mix import Mix, UserLoad
from loadgen.traces import Trace, read_trace
from sparrow_py.errors import InvalidOption, InvalidRequest


class _User(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    load: float
    weight: float = 1.0
    tasks: int = 10
    service: str = "exponential"
    mean_ms: float = 100.0
    alpha: float = 1.5
    per: str = "task"
    constrained: float = 0.0
    replicas: int = 3
    regular: bool = False
    rates: list[tuple[float, float]] = []

    def made(self) -> UserLoad:
        fields: dict[str, Any] = msgspec.structs.asdict(self)
        of_durations = {name: fields.pop(name) for name in ("mean_ms", "alpha", "per")}
        durations = Durations(fields.pop("service"), **of_durations)
        return UserLoad(**fields | {"durations": durations, "rates": Rates(tuple(self.rates))})


class _Mix(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float
    users: Annotated[list[_User], msgspec.Meta(min_length=1)]


def read_workload(path: str) -> Trace | Mix:
    """The workload in a file: a mix if its name ends in .toml, else a trace. `InvalidOption` says what is wrong."""
    return read_mix(path) if path.endswith(".toml") else read_trace(path)


def read_mix(path: str) -> Mix:
    """The mix in a TOML file."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InvalidOption("workload", path, f"a readable file ({error.strerror})") from None
    try:
        given = msgspec.toml.decode(text, type=_Mix)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidOption(path, "its content", f"a mix of users in TOML ({error})") from None
    loads = []
    for number, user in enumerate(given.users):
        try:
            loads.append(user.made())
        except InvalidRequest as error:
            raise InvalidOption(f"{path} users[{number}] {error.field}", error.value, error.allowed) from None
    try:
        return Mix(tuple(loads), given.seconds)
    except InvalidRequest as error:
        raise InvalidOption(f"{path} {error.field}", error.value, error.allowed) from None
