"""Policies are found by name or by module and class; whatever is no policy is refused with words that say why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from scheduler.flow.policies.policy import Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.policies.quincy import Quincy
from scheduler.flow.policies.table import DEFAULT, METHODS, POLICIES, PolicyNameError, policy_named

HERE = __name__


class Plain:
    """A policy that is no dataclass."""

    def see(self, cluster: Cluster) -> None:
        pass

    def task(self, task: Task) -> TaskCosts:
        return TaskCosts([], 1)

    def machine_cost(self, machine: Machine) -> UnitCost:
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        return []


@dataclass
class Chosen(Plain):
    """One with options of all kinds."""

    required: str
    share: float = 0.5
    count: int = 1
    table: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.count == 13:
            raise RuntimeError("13 is not to be")


class NoPolicy:
    def see(self) -> None:
        pass

    task = "not a method"


@pytest.mark.parametrize("name", POLICIES)
def test_each_name_is_that_of_a_policy(name: str) -> None:
    policy = policy_named(name)
    assert all(callable(getattr(policy, method)) for method in METHODS)
    assert f"{type(policy).__module__}:{type(policy).__name__}" == POLICIES[name]
    assert DEFAULT in POLICIES


def test_options_are_fields() -> None:
    assert policy_named("quincy, share_min=0.02, preferred_max=50") == Quincy(share_min=0.02, preferred_max=50)
    assert policy_named(f"{HERE}:Chosen,required=a b,count=3,share=1") == Chosen("a b", 1.0, 3)
    assert isinstance(policy_named(f"{HERE}:Plain"), Plain)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid; allowed: quincy, load-spreading"),
        ("fastest", "not valid; allowed: quincy, load-spreading"),
        ("fastest:", "not valid; allowed: quincy"),
        (":Fastest", "not valid; allowed: quincy"),
        ("no.such.module:Fastest", "the module no.such.module cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Fastest", f"Fastest is to be a class; the module {HERE} has no such name"),
        (f"{HERE}:HERE", f"HERE is to be a class; the module {HERE} has a str of that name"),
        (f"{HERE}:NoPolicy", "NoPolicy is no policy: it has no method task, machine_cost, aggregator_arcs"),
        (f"{HERE}:Plain,share=1", "option 'share=1': allowed is FIELD=VALUE with the fields none: its class"),
        (f"{HERE}:Chosen", "TypeError: .*missing 1 required positional argument: 'required'"),
        (f"{HERE}:Chosen,required=a,table=1", "option table cannot be set here: it is no number and no text"),
        (f"{HERE}:Chosen,required=a,count=1.5", "option count is '1.5'; allowed is a whole number"),
        (f"{HERE}:Chosen,required=a,count=13", "RuntimeError: 13 is not to be"),
        ("quincy,share_min", "option 'share_min': allowed is FIELD=VALUE with the fields share_min, preferred_max"),
        ("quincy,_slots=1", "option '_slots=1': allowed is FIELD=VALUE"),
        ("quincy,share_min=much", "option share_min is 'much'; allowed is a number"),
        ("quincy,share_min=0.1,share_min=0.2", "option share_min comes twice"),
        ("quincy,share_min=0", "share_min is 0.0; allowed are numbers above 0, up to 1"),
    ],
)
def test_others_are_refused(text: str, words: str) -> None:
    with pytest.raises(PolicyNameError, match=f"^flow_policy: {re.escape(repr(text))}(:| is).*{words}"):
        policy_named(text)
