"""Attributes that executors give their node, on top of those that its operator gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from sparrow_py.errors import InvalidRequest, LinkError, shown
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import check_name
from sparrow_py.wire import messages as m

NODE_ATTRIBUTES_MAX = 128
"""Attributes that the executors of a node may give it together."""


def check_attributes(executor: str, attributes: Mapping[str, str]) -> None:
    """`LinkError` unless an executor may say these of its node; how many they may be its message sees to."""
    for name, value in attributes.items():
        try:
            check_name("attribute", name, empty=False)
        except InvalidRequest as error:
            raise LinkError(f"executor {executor}: {error}") from None
        if len(value.encode("utf-8", "replace")) > x.ATTRIBUTE_BYTES_MAX or not (value.isprintable() or not value):
            raise LinkError(
                f"executor {executor}: the value {shown(value)} of attribute {name} is not printable text of at most "
                f"{x.ATTRIBUTE_BYTES_MAX} bytes"
            )


def with_attributes(node: m.NodeInfo, given: Iterable[Mapping[str, str]]) -> m.NodeInfo:
    """The node with what its executors say of it: the last one's word counts, and the operator's above all."""
    merged: dict[str, str] = {}
    for attributes in given:
        merged.update(attributes)
    if len(merged) > NODE_ATTRIBUTES_MAX:
        raise LinkError(
            f"the node's executors give it {len(merged)} attributes; at most {NODE_ATTRIBUTES_MAX} are allowed"
        )
    return msgspec.structs.replace(node, attributes={**merged, **node.attributes}) if merged else node
