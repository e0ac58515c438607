"""The frame decoder: any bytes give messages of the right kinds or `LinkError`."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow_py.errors import LinkError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission

NODE = m.NodeInfo(4, {"cpu": 4.0}, {"zone": "a"}, {"python": "3.11", "noop": ""})
STAGE = m.Stage("python", 2, b"common", "3.11", 2.0, 0, None)
REF = BlobRef("ab" * 32, 1 << 20, ("127.0.0.1:1",))
MESSAGES: list[m.Message] = [
    m.Hello(m.PROTOCOL_VERSION, "node", "node-1", "", "", NODE),
    m.Welcome(m.PROTOCOL_VERSION, "scheduler-1", 1 << 20),
    m.Goodbye("done"),
    m.SubmitJob("job", 0, "name", [STAGE], 3, False, None, True),
    m.AddTasks("job", 0, [b"a", REF], {1: m.TaskDetail(("node-1",), ((0, 1),))}),
    m.CancelJob("job"),
    m.CancelTasks("job", [0, 1]),
    m.JobAccepted("job"),
    m.JobRefused("job", "full", "", 1.5),
    m.Placed("job", 0),
    m.Outcome("job", 0, TaskStatus.FINISHED, b"r", "", 1, "node-1", 1.0, 2.0, 0.5, "o", "e"),
    m.NotCancelled("job", 0),
    m.JobEnded("job"),
    m.Reserve(1, "job", 0, "user", 1.0, 0, "python", 2, 0, None),
    m.CancelReservations(1),
    m.Common("job", 0, b"common"),
    m.Launch(1, "job", 0, 0, 1, b"payload"),
    m.LaunchNow("job", 0, 0, 1, b"payload", "user", 1.0, 0, "noop", None),
    m.NoTask(1, 1),
    m.CancelAttempt("job", 1),
    m.ForgetJob("job"),
    m.ReservationsRefused(1, 2, "full"),
    m.GetTasks(1, 1, 2, None),
    m.Report("job", 0, 1, TaskStatus.FAILED, b"", "why", 1.0, 0.5),
    m.HandBack("job", 1, "late"),
    m.AttemptRuns("job", 1),
    m.NodeChanged(NODE),
    m.NodeState("draining", "stop"),
    m.Known("job", [m.KnownOutcome(3, TaskStatus.FINISHED, b"r")], {4: 1}),
    m.CountKnown("job", {4: 1}),
    m.UsingKnown("job", 7),
    m.Received(70_000),
    m.AskPlaced("job", 7, [0, 3]),
    m.FinishedElsewhere("job", 2, b"result"),
    m.GiveResults("job", {3: b"result", 4: REF}, {5: (TaskStatus.FAILED, b"exception", "error")}),
    m.PlacedNow("job", 7, [3]),
    m.BlobAt("job", REF),
    m.Retried("job", 0, 2),
    m.Counted("job", {4: 1}),
    m.Using("job", 7, ("memory",)),
    m.Unused("job", "memory"),
    m.BlobLost("job", REF.hash),
    m.AskResults("job", [3, 4]),
    m.Draining(),
    m.AllHandedOver(),
    m.HandedOver("job", ((3, 2),)),
    m.HandedOver("job", ((3, 2),), True, True),
    m.Input("job", 3, REF),
    m.Claim("job", "user", 2),
    m.Claimed("job", 2, [(0, 1)]),
    m.Claimed("job", 2, [(0, 1)], True, "user", 3),
    m.StartedHere("job", 2, [0, 3]),
    m.StartedHere("job", 2, [0, 3], "user", 3),
    m.Fenced("job", 2),
    m.Fenced("job", 2, "user", 3),
    m.Idle(3),
    m.DrainingKnown(),
    m.AskLength(7),
    m.QueueLength(7, 3),
    m.Renew("secret"),
    m.Leads(False),
    m.LaunchPlaced("job", 0, 0, 1, b"payload", 2, "user", 1.0, 0, "noop", None),
    m.Lead("flow", 2),
    m.Leading("flow", 2, "scheduler-1", True),
    m.Inventory("flow", 2, [("user", "job", 7)], True),
    m.NodeLoad(2, 3, 1, 0, {"cpu": 2.0}),
    m.Occupied(2),
    m.Preempted("job", 1, 2.5),
    m.TaskSays("job", 1, 2, b"frame"),
    m.TaskGone("job", 1, 2),
    m.TaskHears("job", 1, 2, b"frame"),
    m.TaskHeard(2, 3),
    m.GiveBack("job", [m.Outcome("job", 0, TaskStatus.FINISHED, REF, "", 1, "node", None, None, None)]),
    m.Detach(submission("job", 3), 60.0),
    m.Attach("job", 7),
    m.Detached("job"),
    m.NotDetached("job", "why", "retention_s"),
    m.Attached(submission("job", 3)),
    m.NotAttached("job", True),
    m.KeepData("user", (REF.hash,)),
]
UNIONS: list[Any] = [m.FromClient, m.ToClient, m.ToNode, m.FromNode, m.Hello, m.Welcome | m.Goodbye]


def encode(*messages: m.Message) -> bytes:
    """These messages as a frame."""
    return msgspec.msgpack.encode(list(messages))


def test_every_message_survives_the_wire_and_has_its_own_tag() -> None:
    kinds = [kind for kind in vars(m).values() if isinstance(kind, type) and issubclass(kind, m.Message)]
    kinds.remove(m.Message)
    assert {type(message) for message in MESSAGES} == set(kinds)
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)
    for message in MESSAGES:
        assert m.FrameDecoder(type(message))(encode(message)) == [message]


class FencedBefore(m.Message, tag=48):
    """As before its last two fields; so are the next ones."""

    job: str
    epoch: int


class ClaimedBefore(m.Message, tag=47):
    job: str
    epoch: int
    running: list[tuple[int, int]]
    vouches: bool = False


class StartedHereBefore(m.Message, tag=51):
    job: str
    epoch: int
    tasks: list[int]


@pytest.mark.parametrize(
    ("before", "nameless", "named"),
    [
        (FencedBefore("job", 2), m.Fenced("job", 2), m.Fenced("job", 2, "user", 3)),
        (
            ClaimedBefore("job", 2, [(0, 1)], True),
            m.Claimed("job", 2, [(0, 1)], True),
            m.Claimed("job", 2, [(0, 1)], True, "user", 3),
        ),
        (
            StartedHereBefore("job", 2, [0, 3]),
            m.StartedHere("job", 2, [0, 3]),
            m.StartedHere("job", 2, [0, 3], "user", 3),
        ),
    ],
)
def test_a_node_that_does_not_say_whose_job_it_means_is_understood_and_one_that_does_is_too(
    before: m.Message, nameless: m.Message, named: m.Message
) -> None:
    assert m.FrameDecoder(m.FromNode)(encode(before)) == [nameless]
    assert m.FrameDecoder(type(before))(encode(named)) == [before]


@settings(max_examples=300)
@given(st.binary(max_size=300), st.sampled_from(UNIONS))
def test_any_bytes_give_messages_or_link_error(frame: bytes, union: Any) -> None:
    with contextlib.suppress(LinkError):
        for message in m.FrameDecoder(union)(frame):
            assert isinstance(message, m.Message)


@settings(max_examples=1000)
@given(
    st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 1 << 16),
    st.sampled_from(UNIONS),
)
def test_mutated_frames_give_messages_or_link_error(
    batch: list[m.Message], changes: list[tuple[int, int]], length: int, union: Any
) -> None:
    frame = bytearray(encode(*batch))
    for place, byte in changes:
        frame[place % len(frame)] = byte
    for mutated in (bytes(frame), bytes(frame[: length % len(frame)])):
        with contextlib.suppress(LinkError):
            for message in m.FrameDecoder(union)(mutated):
                assert isinstance(message, m.Message)


def test_deep_nesting_is_a_link_error() -> None:
    with pytest.raises(LinkError, match="malformed frame of 100000 bytes"):
        m.FrameDecoder(m.FromClient)(b"\x91" * 100_000)


def test_an_array_that_claims_to_be_huge_is_a_link_error() -> None:
    with pytest.raises(LinkError):
        m.FrameDecoder(m.FromClient)(b"\xdd\xff\xff\xff\xff")


@pytest.mark.parametrize(("union", "message"), [(m.FromClient, m.GetTasks(1, 1, 1)), (m.FromNode, m.CancelJob("job"))])
def test_messages_of_another_role_are_refused(union: Any, message: m.Message) -> None:
    with pytest.raises(LinkError, match="malformed frame"):
        m.FrameDecoder(union)(encode(message))
