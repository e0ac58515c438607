"""Classes of a process in which a program is unpickled that has them, too.

cloudpickle knows a class again that this process has pickled, and gives it the attributes that have travelled. Methods
of a program's class then call what stands for the stages in that run, also when the run is over. So what the class had
is kept, and given back.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import cloudpickle.cloudpickle

SET_STATE = cloudpickle.cloudpickle._class_setstate
_NOT_SET = frozenset({"__dict__", "__weakref__"})


class KeptClasses:
    """A context in which programs are unpickled, and run."""

    def __init__(self) -> None:
        self._before: list[tuple[type, dict[str, Any]]] = []

    def set_state(self, changed: type, state: Any) -> Any:
        """In place of cloudpickle's own."""
        self._before.append((changed, dict(vars(changed))))
        return SET_STATE(changed, state)

    def __enter__(self) -> KeptClasses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for changed, before in reversed(self._before):
            for name, value in dict(vars(changed)).items():
                if name not in before:
                    delattr(changed, name)
                elif before[name] is not value and name not in _NOT_SET:
                    setattr(changed, name, before[name])
        self._before.clear()
