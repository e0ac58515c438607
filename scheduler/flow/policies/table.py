"""The policies by name, and those of others by `module:Class`. A policy's module is imported when it is asked for.

`NAME,FIELD=VALUE,…` sets options, which are the fields of the policy's dataclass: `quincy,share_min=0.02`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, cast

from scheduler.flow.policies.policy import Policy

POLICIES: Mapping[str, str] = {
    "quincy": "scheduler.flow.policies.quincy:Quincy",
    "load-spreading": "scheduler.flow.policies.load_spreading:LoadSpreading",
    "network-aware": "scheduler.flow.policies.network_aware:NetworkAware",
    "shortest-job": "scheduler.flow.policies.shortest_job:ShortestJob",
    "co-location": "scheduler.flow.policies.co_location:CoLocation",
}
"""Each a module and the class in it."""

DEFAULT = "quincy"
METHODS = ("see", "task", "machine_cost", "aggregator_arcs")
"""What a policy has to have."""
ALLOWED = f"allowed: {', '.join(POLICIES)}, or module:Class, each with options after commas (FIELD=VALUE)"


class PolicyNameError(ValueError):
    """The text names no policy, or an option that is none: says what is allowed."""


def policy_named(text: str) -> Policy:
    """The policy that a text names, with the options that it sets; `PolicyNameError` if there is none such."""
    name, *options = (part.strip() for part in text.split(","))
    where = POLICIES.get(name, name)
    module, colon, class_name = where.partition(":")
    if not (module and colon and class_name):
        raise PolicyNameError(f"flow_policy: {text!r} is not valid; {ALLOWED}")
    made = _class_of(text, module, class_name)
    values = _options(text, made, options)
    try:
        policy = made(**values)
    except Exception as error:  # Whatever code of others raises is a message here.
        raise PolicyNameError(f"flow_policy: {text!r}: {_words(error)}") from error
    missing = [method for method in METHODS if not callable(getattr(policy, method, None))]
    if missing:
        raise PolicyNameError(
            f"flow_policy: {text!r}: {class_name} is no policy: it has no method {', '.join(missing)}"
        )
    return cast(Policy, policy)


def _class_of(text: str, module: str, class_name: str) -> Callable[..., object]:
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise PolicyNameError(
            f"flow_policy: {text!r}: the module {module} cannot be imported: {_words(error)}"
        ) from error
    found = getattr(imported, class_name, None)
    if not isinstance(found, type):
        what = "has no such name" if found is None else f"has a {type(found).__name__} of that name"
        raise PolicyNameError(f"flow_policy: {text!r}: {class_name} is to be a class; the module {module} {what}")
    return found


def _options(text: str, made: Callable[..., object], options: list[str]) -> dict[str, object]:
    """The values of options by their fields, as numbers or words, whatever the field has by default."""
    known = {one.name: one for one in fields(cast(Any, made)) if one.init} if is_dataclass(made) else {}
    values: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name not in known:
            allowed = ", ".join(known) or "none: its class is no dataclass"
            raise PolicyNameError(
                f"flow_policy: {text!r}: option {option!r}: allowed is FIELD=VALUE with the fields {allowed}"
            )
        if name in values:
            raise PolicyNameError(f"flow_policy: {text!r}: option {name} comes twice")
        values[name] = _value(text, known[name], value)
    return values


def _value(text: str, option: Field[Any], value: str) -> object:
    """What a field's default is: a whole number, a number or text."""
    kind = str if option.default is MISSING else type(option.default)
    if kind not in (int, float, str):
        raise PolicyNameError(
            f"flow_policy: {text!r}: option {option.name} cannot be set here: it is no number and no text"
        )
    try:
        return kind(value)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise PolicyNameError(f"flow_policy: {text!r}: option {option.name} is {value!r}; allowed is {what}") from None


def _words(error: Exception) -> str:
    return f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
