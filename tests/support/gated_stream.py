"""A text stream that takes nothing for a while, as a terminal does that nobody reads."""

import io
import threading

from tests.support.waiting import TIMEOUT_S


class GatedStream(io.StringIO):
    """Takes nothing until `gate` is open. `reached`: whether somebody has tried to write."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.reached = threading.Event()

    def write(self, text: str) -> int:
        """As a text stream's, once the gate is open."""
        self.reached.set()
        assert self.gate.wait(TIMEOUT_S)
        return super().write(text)
