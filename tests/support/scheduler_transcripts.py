"""The commands of transcripts that a scheduler's core answers.

scheduler a=2 b=1 order=oldest      a core with the options, and the nodes a of 2 slots and b of 1
submit j tasks=2 epoch=1            the client submits a job with all its tasks; fields as in `submission`
client says CancelJob job=j         a message of the client, or of a node
a comes, a goes                     the node connects, or its link breaks
the client vanishes
at 1.5                              time has come to 1.5 s; it is the time of what follows
state j                             how the job stands
"""

from __future__ import annotations

from typing import Any

from scheduler.book.jobs import BLOCKED, HELD, PLACED, SETTLED, UNPLACED
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info
from tests.support.transcripts import fields_of, shown

CLIENT = "client"
DEFAULTS: dict[str, dict[str, Any]] = {
    "Report": {"result": b"", "error": "", "started_at_s": None, "service_s": None},
    "Claimed": {"running": []},
    "Known": {"outcomes": [], "starts": {}},
    "ReservationsRefused": {"reason": "no room"},
    "HandBack": {"reason": "no room"},
    "NodeState": {"reason": ""},
}
STATES = {UNPLACED: "unplaced", PLACED: "placed", SETTLED: "settled", BLOCKED: "blocked", HELD: "held"}
SAME_ALWAYS = ("user", "weight", "app")
"""Fields that the transcripts leave out."""


class SchedulerPlayer:
    """Takes commands."""

    def __init__(self) -> None:
        self._rig = SchedulerRig()
        self._now_s = 0.0

    def __call__(self, command: str) -> list[str]:
        verb, *words = command.split()
        if verb == "scheduler":
            self._begin(fields_of(words))
        elif verb == "submit":
            self._submit(words[0], fields_of(words[1:]))
        elif verb == "at":
            self._now_s = float(words[0])
            self._rig.tick(self._now_s)
        elif verb == "state":
            return self._state(words[0])
        elif command == "the client vanishes":
            self._rig.core.client_down(CLIENT, self._now_s, said_goodbye=False)
        elif words[0] == "comes":
            self._rig.node_up(verb, node_info(memory=verb.upper()), self._now_s)
        elif words[0] == "goes":
            self._rig.node_down(verb, self._now_s)
        elif words[0] == "says":
            self._say(verb, words[1], fields_of(words[2:]))
        else:
            raise ValueError(f"{command!r} is no command")
        return self._effects()

    def _begin(self, fields: dict[str, Any]) -> None:
        nodes = {name: node_info(fields.pop(name), memory=name.upper()) for name in list(fields) if len(name) == 1}
        self._rig = SchedulerRig(nodes, **fields)

    def _submit(self, job: str, fields: dict[str, Any]) -> None:
        preferred: dict[int, tuple[str, ...]] = fields.pop("preferred", {})
        details = {task: m.TaskDetail(nodes) for task, nodes in preferred.items()}
        starts, used = fields.pop("starts", {}), fields.pop("used", None)
        known = [m.Known(job, [], starts, (), used)] if starts or used is not None else []
        tasks = fields.pop("tasks", 1)
        payloads = [f"{job}{task}".encode() for task in range(tasks)]
        self._rig.submit_job(
            tasks,
            *known,
            job=job,
            payloads=payloads,
            details=details,
            now_s=self._now_s,
            client=CLIENT,
            local=bool(details),
            **fields,
        )

    def _say(self, peer: str, kind: str, fields: dict[str, Any]) -> None:
        if "status" in fields:
            fields["status"] = TaskStatus(fields["status"])
        message = getattr(m, kind)(**{**DEFAULTS.get(kind, {}), **fields})
        if peer == "client":
            self._rig.client(message, now_s=self._now_s, client=CLIENT)
        else:
            self._rig.node(peer, message, now_s=self._now_s)

    def _state(self, job_id: str) -> list[str]:
        job = self._rig.core.jobs.get(job_id)
        if job is None:
            return [f"{job_id} is not here"]
        waits = [*(["settling"] if job.settling else []), *sorted(job.unanswered)]
        tasks = [STATES[state] for stage in job.stages for state in stage.states]
        waiting = f" and waits for {', '.join(waits)}" if waits else ""
        return [f"{job_id} is {job.phase.value}{waiting}: {' '.join(tasks)}"]

    def _effects(self) -> list[str]:
        sent, self._rig.outbox.sent = self._rig.outbox.sent, []
        return [f"{to} <- {shown(message, SAME_ALWAYS)}" for to, message in sent]
