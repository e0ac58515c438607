"""What the laboratory calls its daemons."""

from __future__ import annotations


def scheduler(number: int) -> str:
    """The name of a scheduler."""
    return f"scheduler-{number}"


def node(number: int) -> str:
    """The name of a node."""
    return f"node-{number}"


def number_of(name: str) -> int:
    """Of a scheduler or a node."""
    return int(name.rpartition("-")[2])
