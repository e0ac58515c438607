"""A heap of nodes, the nearest first: four children each, and each node's place known, so that it can come nearer."""

from __future__ import annotations

from scheduler.flow.kernels import kernel
from scheduler.flow.network import NONE, Numbers
from scheduler.flow.problem import Integers


@kernel
def rise(distance: Integers, heap: Numbers, places: Numbers, place: int) -> None:
    """Move the node at a place up to where its distance belongs."""
    node = heap[place]
    mine = distance[node]
    while place > 0:
        above = (place - 1) // 4
        other = heap[above]
        if distance[other] <= mine:
            break
        heap[place] = other
        places[other] = place
        place = above
    heap[place] = node
    places[node] = place


@kernel
def insert(distance: Integers, heap: Numbers, places: Numbers, node: int, size: int) -> int:
    """Add a node to a heap of that size, or move it up if it is there. The size then."""
    place = places[node]
    if place == NONE:
        place = size
        heap[place] = node
        size += 1
    rise(distance, heap, places, place)
    return size


@kernel
def remove(distance: Integers, heap: Numbers, places: Numbers, place: int, size: int) -> int:
    """Remove the node at a place of a heap of that size. The size then."""
    places[heap[place]] = NONE
    size -= 1
    node = heap[size]
    if place == size:
        return size
    mine = distance[node]
    heap[place] = node
    places[node] = place
    rise(distance, heap, places, place)
    place = places[node]
    while True:
        least, least_distance = place, mine
        for child in range(4 * place + 1, min(4 * place + 5, size)):
            if distance[heap[child]] < least_distance:
                least, least_distance = child, distance[heap[child]]
        if least == place:
            break
        other = heap[least]
        heap[place] = other
        places[other] = place
        place = least
    heap[place] = node
    places[node] = place
    return size
