"""A heap of nodes, the nearest first: four children each, and each node's place known, so that it can come nearer."""

from __future__ import annotations

from scheduler.flow.kernels import kernel
from scheduler.flow.network import NONE
from scheduler.flow.problem import Integers

DISTANCE, HEAP, PLACE = 0, 1, 2
"""Rows of a table with a column for each node: how far it is; the heap, of which no more than its size counts; where a
node stands in it, or NONE."""


@kernel
def rise(table: Integers, place: int) -> None:
    """Move the node at a place up to where its distance belongs."""
    node = table[HEAP, place]
    mine = table[DISTANCE, node]
    while place > 0:
        above = (place - 1) // 4
        other = table[HEAP, above]
        if table[DISTANCE, other] <= mine:
            break
        table[HEAP, place] = other
        table[PLACE, other] = place
        place = above
    table[HEAP, place] = node
    table[PLACE, node] = place


@kernel
def insert(table: Integers, node: int, size: int) -> int:
    """Add a node to a heap of that size, or move it up if it is there. The size then."""
    place = table[PLACE, node]
    if place == NONE:
        place = size
        table[HEAP, place] = node
        size += 1
    rise(table, place)
    return size


@kernel
def remove(table: Integers, place: int, size: int) -> int:
    """Remove the node at a place of a heap of that size. The size then."""
    table[PLACE, table[HEAP, place]] = NONE
    size -= 1
    node = table[HEAP, size]
    if place == size:
        return size
    mine = table[DISTANCE, node]
    table[HEAP, place] = node
    table[PLACE, node] = place
    rise(table, place)
    place = table[PLACE, node]
    while True:
        least, least_distance = place, mine
        for child in range(4 * place + 1, min(4 * place + 5, size)):
            if table[DISTANCE, table[HEAP, child]] < least_distance:
                least, least_distance = child, table[DISTANCE, table[HEAP, child]]
        if least == place:
            break
        other = table[HEAP, least]
        table[HEAP, place] = other
        table[PLACE, other] = place
        place = least
    table[HEAP, place] = node
    table[PLACE, node] = place
    return size
