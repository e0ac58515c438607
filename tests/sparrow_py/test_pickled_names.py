"""Programs and workers of two versions read each other's pickles: classes that travel keep their modules and names."""

from __future__ import annotations

import base64
import json
import pickle
import pickletools
from collections.abc import Iterator

import pytest

import sparrow_py
from tests.support.record_pickles import RECORDED, samples

PICKLES = {name: base64.b64decode(text) for name, text in json.loads(RECORDED.read_text()).items()}


def names(pickled: bytes) -> set[tuple[str, str]]:
    """The modules and names in them that unpickling looks up in our packages."""
    return {(module, name) for module, name in _looked_up(pickled) if module.partition(".")[0] == "sparrow_py"}


def _looked_up(pickled: bytes) -> Iterator[tuple[str, str]]:
    texts: list[str] = []
    kept: list[str] = []
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "STACK_GLOBAL":
            yield texts[-2], texts[-1]
        elif isinstance(argument, str):
            texts.append(argument)
        elif operation.name == "MEMOIZE":
            kept.append(texts[-1] if texts else "")
        elif operation.name in ("BINGET", "LONG_BINGET"):
            texts.append(kept[argument])


def test_every_public_name_is_recorded() -> None:
    assert {name.removeprefix("the name ") for name in PICKLES if name.startswith("the name ")} == set(
        sparrow_py.__all__
    )


@pytest.mark.parametrize("name", PICKLES)
def test_what_the_version_before_has_pickled_can_be_read(name: str) -> None:
    assert names(PICKLES[name])
    pickle.loads(PICKLES[name])


@pytest.mark.parametrize("name", PICKLES)
def test_what_is_pickled_now_names_what_the_version_before_has(name: str) -> None:
    assert names(samples()[name]()) == names(PICKLES[name])
