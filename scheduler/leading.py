"""Whether this scheduler leads its plane, for planes of which one scheduler places at a time.

Nobody elects a leader: each node accepts the highest lead epoch that it hears of (`node_monitor.leading`), and a
scheduler leads once more than half of the nodes that are linked to it have accepted its own. It asks before it claims,
so that it disturbs no other that leads. Of several that claim the same epoch each node accepts the first; where none
has more than half, the one with the greatest name claims again, and the others yield. A leader that hears of a higher
epoch yields, unless its scheduler is not linked to the node that says so: then this one claims again, above it.

Pure: it is told what nodes say, and the time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from sparrow_py.counted import counted
from sparrow_py.errors import InvariantViolated, LinkError
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

ANY = "any"
"""In place of an address: stand by for whichever scheduler leads."""
FORCED_RAISES_MAX = 20
"""Claims in a row by which an operator's order is carried out against others, as against another such order."""


class State(Enum):
    """What a scheduler of a plane with a leader does about leading it."""

    may_become: tuple[State, ...]

    ASKING = "asks the nodes who leads"
    CLAIMING = "waits until more than half of the nodes have accepted it"
    LEADING = "leads"
    STANDING_BY = "stands by for the scheduler that leads"
    DEPOSED = "stands by for the scheduler that leads in its place"
    REFUSED = "ends, as another scheduler leads, for which it does not stand by"


ASKING, CLAIMING, LEADING = State.ASKING, State.CLAIMING, State.LEADING
STANDING_BY, DEPOSED, REFUSED = State.STANDING_BY, State.DEPOSED, State.REFUSED

TRANSITIONS: dict[State, tuple[State, ...]] = {
    # Nobody leads: it claims, or first gives the scheduler for which it stands by the time to come. Or somebody does.
    ASKING: (CLAIMING, STANDING_BY, DEPOSED, REFUSED),
    # Enough nodes accept it. Or it claims again, above another; or yields to one.
    CLAIMING: (LEADING, CLAIMING, STANDING_BY, DEPOSED, REFUSED),
    # Another was accepted in its place; or no node is left, so that another may have been.
    LEADING: (DEPOSED, ASKING),
    # Whoever led is gone for long enough, or an operator wants it.
    STANDING_BY: (CLAIMING,),
    DEPOSED: (CLAIMING,),
    # An operator wants it, while the process is on its way out.
    REFUSED: (CLAIMING,),
}
for _state, _after in TRANSITIONS.items():
    _state.may_become = _after


class Leading:
    """The state machine of one scheduler. name: what its links are welcomed with, unlike any other process's.

    send: takes a node's id and the `Lead` for it. standby_of: "" for none, `ANY`, or the address of a scheduler, as
    nodes dial it. All nodes that it is told of know the messages.
    """

    def __init__(
        self,
        plane: str,
        name: str,
        send: Callable[[str, m.Lead], None],
        timers: Timers,
        *,
        standby_of: str = "",
        takeover_s: float,
        settling_s: float,
        nodes_expected: int = 0,
    ) -> None:
        self.plane = plane
        self.name = name
        self.state = ASKING
        self.epoch = 0
        """Its own lead epoch, while it claims or leads; else 0."""
        self.changed: Callable[[bool, float], None] = _nobody_cares
        """Called with whether it leads and the time, when that has changed, and when it is deposed."""
        self.refused: Callable[[], None] = _process_goes_on
        """Called when the process is to end, as another scheduler leads: `why_not` says which."""
        self._send = send
        self._timers = timers
        self._standby_of = standby_of
        self._takeover_s = takeover_s
        self._settling_s = settling_s
        self._nodes_expected = nodes_expected
        """Once so many nodes are linked, no others are waited for; 0: nobody knows how many there are."""
        self._said: dict[str, m.Leading | None] = {}
        """What each linked node has said last since it was asked or told; None if nothing yet."""
        self._silent: set[str] = set()
        """Those that have said nothing yet."""
        self._without: set[str] = set()
        """Those that have said that no other scheduler that leads is linked to them."""
        self._accepted: set[str] = set()
        """Those that have accepted its epoch."""
        self._refused: dict[str, m.Leading] = {}
        """Those that had accepted another with the same epoch, and what they said."""
        self._taken: dict[str, m.Leading] = {}
        """Those where another plane has a leader, and so none of this one is accepted; and what they said of it."""
        self._absent: set[str] = set()
        """Nodes that were linked in this process's life and are not."""
        self._highest = 0
        """The highest epoch that it has heard of or claimed."""
        self._other: m.Leading | None = None
        """Of another scheduler: the last that was said to lead."""
        self._forced = 0
        """How often it may still claim above others, by an operator's order."""
        self._has_led = False
        self._settled = False
        """Whether it has waited for nodes for long enough, to ask."""
        self._gone = False
        """Whether most nodes say that nobody else leads, while it stands by."""
        self._turn = 0
        """Counts what makes timers void."""

    # ---- what others ask ---------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether it may place tasks."""
        return self.state is LEADING

    @property
    def is_deposed(self) -> bool:
        """Whether another was accepted in its place."""
        return self.state is DEPOSED

    @property
    def accepted(self) -> int:
        """How many of the linked nodes have accepted its epoch."""
        return len(self._accepted)

    @property
    def other(self) -> m.Leading | None:
        """What was said last of the scheduler that leads in its place; None if none does, as far as it knows."""
        return None if self.state is LEADING or self._gone else self._other

    def why_not(self) -> str:
        """Why it does not lead; empty if it does."""
        other = "" if self._other is None else f" ({_names(self._other)})"
        if self.state is LEADING:
            return ""
        if self.state is CLAIMING:
            nodes = counted(len(self._said), "node", "have")
            of = f"{len(self._accepted)} of {nodes} accepted it with epoch {self.epoch}"
            taken = next(iter(self._taken.values()), None)
            led = "" if taken is None else f"; {len(self._taken)} are led on plane {taken.plane} ({_names(taken)})"
            return f"it does not lead plane {self.plane} yet: {of}{led}"
        if self.state is ASKING:
            return f"it does not lead plane {self.plane} yet: it asks {counted(len(self._said), 'node')} who does"
        if self._gone or not other:
            return f"it does not lead plane {self.plane}: it stands by, for {self._takeover_s:g} s after nobody does"
        return f"it does not lead plane {self.plane}: another scheduler does{other}"

    def why_refused(self) -> str:
        """The line with which the process ends that may not lead, nor stand by."""
        assert self._other is not None
        if self._other.plane != self.plane:
            return (
                f"another plane places the tasks of these nodes: {self._other.plane}, led by {_names(self._other)}. "
                f"Stop that scheduler before plane {self.plane} begins"
            )
        return (
            f"another scheduler leads plane {self.plane}: {_names(self._other)}. Start this one with --standby-of any, "
            f"to lead once that is gone, or as such a standby have it lead at once with: sparrow lead --force "
            f"-s ITS-ADDRESS"
        )

    # ---- events: nodes -----------------------------------------------------------------------

    def node_up(self, node_id: str, now_s: float) -> None:
        """A node is linked: it is asked, or told, at once."""
        first = not self._said
        self._said[node_id] = None
        self._silent.add(node_id)
        self._absent.discard(node_id)
        self._send(node_id, m.Lead(self.plane, self.epoch, self._forced > 0))
        if self.state is ASKING and first:
            self._void_timers()
            self._at(now_s + self._settling_s, self._has_settled)
        elif self.state is LEADING and first:
            self._void_timers()
        elif self.state in (STANDING_BY, DEPOSED):
            self._look(now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """A node's link is gone, of one that may be too old to have been told of."""
        if node_id not in self._said:
            return
        del self._said[node_id]
        for nodes in (self._silent, self._without, self._accepted):
            nodes.discard(node_id)
        self._refused.pop(node_id, None)
        self._taken.pop(node_id, None)
        self._absent.add(node_id)
        if not self._said:
            self._all_nodes_gone(now_s)
        elif self.state is ASKING:
            self._claim_if_settled(now_s)
        elif self.state is CLAIMING:
            self._lead_if_accepted(now_s)
            if self.state is CLAIMING:
                self._decide_if_refused(now_s)
        elif self.state in (STANDING_BY, DEPOSED):
            self._look(now_s)

    def _all_nodes_gone(self, now_s: float) -> None:
        """Nobody tells any more who leads."""
        if self.state is LEADING:
            self._at(now_s + self._takeover_s, self._ask_again)
        elif self.state is ASKING:
            self._void_timers()
            self._settled = False
        elif self.state in (STANDING_BY, DEPOSED):
            self._look(now_s)

    def heard(self, node_id: str, message: m.Leading, now_s: float) -> None:
        """A linked node says who leads; `LinkError` if that cannot be."""
        if message.plane != self.plane:
            self._heard_of_another_plane(node_id, message, now_s)
            return
        if not 0 <= message.epoch < m.LEAD_EPOCH_MAX:
            raise LinkError(f"plane {self.plane} cannot be led with epoch {message.epoch}")
        self._said[node_id] = message
        self._silent.discard(node_id)
        self._highest = max(self._highest, message.epoch)
        ours = message.leader == self.name
        if message.linked and not ours:
            self._without.discard(node_id)
            if self._other is None or message.epoch >= self._other.epoch:
                self._other = message
        else:
            self._without.add(node_id)
        if self.state is ASKING:
            self._answered(message, now_s)
        elif self.state in (CLAIMING, LEADING):
            if ours and message.linked and message.epoch == self.epoch:
                self._accepted.add(node_id)
                self._refused.pop(node_id, None)
                self._lead_if_accepted(now_s)
            elif not ours and message.epoch >= self.epoch:
                self._accepted.discard(node_id)
                self._contested(node_id, message, now_s)
        elif self.state is not REFUSED:
            self._look(now_s)

    def _heard_of_another_plane(self, node_id: str, message: m.Leading, now_s: float) -> None:
        """A node accepts nobody of this plane while another has a leader there: whoever claims mostly such nodes ends,
        and whoever led them before has lost them."""
        if node_id not in self._said:
            return
        if message.linked:
            self._taken[node_id] = message
        elif self._taken.pop(node_id, None) is not None and self.state is CLAIMING:
            self._send(node_id, m.Lead(self.plane, self.epoch, self._forced > 0))
        if 2 * len(self._taken) > len(self._said):
            self._give_way_to_plane(message, now_s)

    def _give_way_to_plane(self, other: m.Leading, now_s: float) -> None:
        if self.state is LEADING:
            self._become(DEPOSED)
        elif self.state is CLAIMING and not self._forced:
            self._become(REFUSED)
        else:
            return
        self.epoch, self._other = 0, other
        self._tell_all()
        if self.state is REFUSED:
            self.refused()
        else:
            self.changed(False, now_s)
            self._look(now_s)

    # ---- asking ------------------------------------------------------------------------------

    def _answered(self, message: m.Leading, now_s: float) -> None:
        if message.linked and message.leader != self.name:
            self._yield(message, now_s)
        else:
            self._claim_if_settled(now_s)

    def _has_settled(self, now_s: float) -> None:
        self._settled = True
        self._claim_if_settled(now_s)

    def _claim_if_settled(self, now_s: float) -> None:
        """Nobody leads, as far as the linked nodes know: and no others are on their way, or they take too long."""
        all_linked = self._has_led or 0 < self._nodes_expected <= len(self._said)
        knows_all = all_linked and not self._absent and not self._silent
        if not knows_all and not (self._settled and 2 * len(self._silent) < len(self._said)):
            return
        if self._standby_of and not self._has_led:
            self._become(STANDING_BY)
            self._look(now_s)
        else:
            self._claim(now_s)

    def _ask_again(self, now_s: float) -> None:
        """All nodes are gone for so long that another may lead them: who does, is asked as soon as they are back."""
        self._become(ASKING)
        self.epoch, self._settled = 0, False
        self.changed(False, now_s)

    # ---- claiming ----------------------------------------------------------------------------

    def force(self, now_s: float) -> bool:
        """An operator wants it to lead, whoever does; False if it does already."""
        if self.state is LEADING:
            return False
        self._forced = FORCED_RAISES_MAX
        self._claim(now_s)
        return True

    def _claim(self, now_s: float) -> None:
        self._become(CLAIMING)
        self._raise()

    def _raise(self) -> None:
        """Claim all nodes with an epoch above all that were heard of."""
        self._highest += 1
        self.epoch = self._highest
        self._accepted.clear()
        self._refused.clear()
        self._tell_all()

    def _tell_all(self) -> None:
        """What it is, to all nodes; their answers are new ones."""
        self._said = dict.fromkeys(self._said)
        self._silent = set(self._said)
        self._without.clear()
        for node_id in self._said:
            self._send(node_id, m.Lead(self.plane, self.epoch, self._forced > 0))

    def _lead_if_accepted(self, now_s: float) -> None:
        if self.state is CLAIMING and 2 * len(self._accepted) > len(self._said):
            self._become(LEADING)
            self._forced, self._has_led, self._other = 0, True, None
            self.changed(True, now_s)
            self._decide_if_refused(now_s)

    def _contested(self, node_id: str, message: m.Leading, now_s: float) -> None:
        """A node has accepted another, with the same epoch or a higher one."""
        if not message.linked or self._forced:
            self._claim_above(now_s)
        elif message.epoch > self.epoch:
            self._yield(message, now_s)
        else:
            self._refused[node_id] = message
            self._decide_if_refused(now_s)

    def _claim_above(self, now_s: float) -> None:
        if self.state is LEADING:
            self._raise()
        else:
            self._forced = max(self._forced - 1, 0)
            self._claim(now_s)

    def _decide_if_refused(self, now_s: float) -> None:
        """Nodes have accepted others with the same epoch. If those are so many that this one cannot have more than
        half, it claims again above them, or yields. While it leads it claims above a lesser name, and leaves it to a
        greater one to do so, or to yield."""
        if not self._refused:
            return
        others = sorted(self._refused.values(), key=lambda said: said.leader)
        middle, last = others[len(others) // 2], others[-1]
        if 2 * sum(said.leader == middle.leader for said in others) > len(self._said):
            self._yield(middle, now_s)
        elif self.state is LEADING or 2 * len(others) >= len(self._said):
            if self.name > last.leader:
                self._claim_above(now_s)
            elif self.state is CLAIMING:
                self._yield(last, now_s)

    # ---- others lead -------------------------------------------------------------------------

    def _yield(self, other: m.Leading, now_s: float) -> None:
        """Another leads: give way to it."""
        claimed = self.epoch > 0
        self.epoch, self._other = 0, other
        if self._has_led:
            self._become(DEPOSED)
        elif self._standby_of in (ANY, other.address):
            self._become(STANDING_BY)
        else:
            self._become(REFUSED)
        if claimed:
            self._tell_all()
        if self.state is DEPOSED:
            self.changed(False, now_s)
        if self.state is REFUSED:
            self.refused()
        else:
            self._look(now_s)

    def _look(self, now_s: float) -> None:
        """Whether somebody leads, while this one stands by: not if most nodes say so, for `takeover_s`."""
        gone = 2 * len(self._without) > len(self._said)
        if gone == self._gone:
            return
        self._gone = gone
        self._void_timers()
        if gone:
            self._at(now_s + self._takeover_s, self._claim)

    # ---- states and timers -------------------------------------------------------------------

    def _become(self, state: State) -> None:
        if state not in self.state.may_become:
            raise InvariantViolated(f"a scheduler that {self.state.value} cannot become one that {state.value}", [])
        self.state = state
        self._gone = False
        self._void_timers()

    def _void_timers(self) -> None:
        self._turn += 1

    def _at(self, at_s: float, action: Callable[[float], None]) -> None:
        """Call it then, unless timers are void by then."""
        turn = self._turn

        def act(now_s: float) -> None:
            if turn == self._turn:
                action(now_s)

        self._timers.at(at_s, act, lambda: turn == self._turn)


def _names(other: m.Leading) -> str:
    """The other scheduler, for people."""
    return f"{other.leader} at {other.address}, epoch {other.epoch}"


def _nobody_cares(leads: bool, now_s: float) -> None:
    """Of a change."""


def _process_goes_on() -> None:
    """Nothing ends it."""
