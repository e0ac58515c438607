"""After thousands of allocations, moves and lost links nothing is left: no descriptor, no mapped memory, no file."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from frontends.dataflow.dialling import Transport
from frontends.dataflow.encoding import INLINE_BYTES_MAX, flat_bytes
from frontends.dataflow.errors import LinkRefused
from frontends.dataflow.messages import Partition
from tests.frontends.dataflow.conftest import MakePeer
from tests.support.dataflow_peers import KEY, Peer, chunk, marked, open_files, open_memory

STEPS = 1_000
HELD_MAX = 12


class Traffic:
    """Peers that make arrays, send them, hand them over, drop them, and lose each other, all by chance."""

    def __init__(self, seed: int, made: list[Peer], directory: Path) -> None:
        self.chance = Random(seed)
        self.peers = {peer.me: peer for peer in made}
        self.addresses = {peer.me: peer.links.listen(directory) for peer in made}
        self.held: dict[int, list[np.ndarray[Any, Any]]] = {peer.me: [] for peer in made}
        self.done = dict.fromkeys(("made", "sent", "moved", "came", "dropped", "lost"), 0)

    def array(self, peer: Peer) -> np.ndarray[Any, Any]:
        size = self.chance.choice([100, INLINE_BYTES_MAX + 1, 50_000, 300_000])
        array = peer.memory.empty(size, np.uint8)
        array[:] = size % 251
        self.done["made"] += 1
        return array

    def step(self) -> None:
        chance = self.chance
        one, other = chance.sample(sorted(self.peers), 2)
        peer = self.peers[one]
        if other not in peer.links.peers():
            if one > other and one not in self.peers[other].links.peers():
                with contextlib.suppress(LinkRefused):  # The other side may not know yet that it has lost the link.
                    peer.links.dial(other, self.addresses[other])
            self.receive(other)
            return
        match chance.randrange(20):
            case 0 | 1 | 2 | 3:
                self.held[one].append(self.array(peer))
            case 4 | 5 | 6 | 7:
                array = chance.choice(self.held[one]) if self.held[one] else self.array(peer)
                peer.links.post(other, chunk(array, array[: max(1, array.size // 2)], {"within": array}))
                self.done["sent"] += 1
            case 8 | 9 | 10 | 11:
                array = self.held[one].pop() if self.held[one] else self.array(peer)
                peer.links.send(other, Partition(1, 2, 3, 4, {0: array, 1: self.array(peer)}, {}, []))
                self.done["moved"] += 1
            case 12 if chance.random() < 0.3:
                peer.links.end(other, "by chance")
                self.done["lost"] += 1
            case _:
                self.receive(one)
        while len(self.held[one]) > HELD_MAX:
            self.held[one].pop(chance.randrange(len(self.held[one])))
            self.done["dropped"] += 1

    def receive(self, me: int) -> None:
        for _, message in self.peers[me].links.receive():
            arrays = list(message.values.values()) if isinstance(message, Partition) else message.chunks[:2]
            for array in arrays:
                assert array.size and (array == array[0]).all()
                self.held[me].append(array)
            self.done["came"] += 1
        self.peers[me].links.lost()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize("seed", [1])
def test_random_traffic_leaves_nothing(
    seed: int, transport: Transport, peers: MakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.memory.OWN_FILES_MAX", 8)
    before = open_files()
    made = [peers(me, transport) for me in range(3)]
    traffic = Traffic(seed, made, tmp_path)
    for _ in range(STEPS):
        traffic.step()
    assert min(traffic.done.values()) > 5, traffic.done
    for peer in made:
        peer.links.close(0)
    traffic.held.clear()
    gc.collect()
    assert [peer.memory.mapped_bytes() for peer in made] == [peer.memory.kept_bytes() for peer in made]
    del peer, made, traffic
    assert open_memory() == 0
    assert open_files() == before
    assert not list(tmp_path.iterdir())


def test_memory_goes_back_and_forth_a_thousand_times(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    array = one.memory.empty(20_000, np.uint8)
    array[:] = 7
    other.links.send(0, marked(1))
    one.message()
    for _ in range(500):
        one.links.send(1, Partition(1, 2, 3, 4, {0: array}, {}, []))
        array = other.message(one).values[0]
        assert other.memory.own_file(flat_bytes(array)) is not None
        other.links.send(0, Partition(1, 2, 3, 4, {0: array}, {}, []))
        array = one.message(other).values[0]
    assert (array == 7).all()
    assert open_memory() == 1 and one.memory.mapped_bytes() + other.memory.mapped_bytes() < 50_000


HOLDER = """
import sys
from frontends.dataflow.memory import Memory
from frontends.dataflow.transport import Links
from tests.support.dataflow_peers import marked
import msgspec
from frontends.dataflow.dialling import Address

links = Links(1, bytes.fromhex(sys.argv[1]), Memory())
links.dial(0, msgspec.json.decode(sys.argv[2], type=Address))
links.send(0, marked(0))
held = []
while True:
    links.wait(60)
    held += links.receive()
    links.send(0, marked(len(held)))
"""


def test_what_a_killed_process_held_is_free_again(peers: MakePeer, tmp_path: Path) -> None:
    one = peers(0, "unix")
    address = msgspec.json.encode(one.links.listen(tmp_path)).decode()
    with subprocess.Popen([sys.executable, "-c", HOLDER, KEY.hex(), address], cwd=Path.cwd()) as process:
        try:
            assert one.message() == marked(0)
            for number in range(1, 6):
                one.links.send(1, chunk(np.zeros(100_000)))
                assert one.message() == marked(number)
            assert one.memory.mapped_bytes() >= 5 * 800_000
        finally:
            process.kill()
        assert one.lost() == [(1, "it closed the connection")]
    gc.collect()
    assert one.memory.mapped_bytes() == 0 and open_memory() == 0
