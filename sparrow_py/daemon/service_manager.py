"""systemd, or whatever else has started this process and waits to hear from it (sd_notify(3)).

A service of Type=notify counts as started when it says so, and with WatchdogSec= it is ended and started again when it
has not been heard of for so long. The protocol is a datagram of text; where nobody waits, nothing is said.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping

log = logging.getLogger("sparrow.service")
SOCKET, WATCHDOG_US, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
SIGNS_PER_WATCHDOG = 3
"""How often the daemon is heard of in the time after which it is given up."""


class ServiceManager:
    """Who is told that the daemon is ready, lives and ends. Nobody, if there is no address."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        """The daemon is given up when it was not heard of for so long; 0: never."""

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str], *, heeded: bool = True) -> ServiceManager:
        """The one that the environment names, and names no more: to executors it is not to listen. `heeded`: whether
        this process is the service; an embedded daemon is a part of one."""
        address, watchdog_us, pid = (environment.pop(name, "") for name in (SOCKET, WATCHDOG_US, WATCHDOG_PID))
        if not heeded or not address.startswith(("/", "@")):
            return cls()
        watched = watchdog_us.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(watchdog_us) / 1e6 if watched else 0.0)

    def ready(self, status: str) -> None:
        """The daemon works; `status` is shown by `systemctl status`."""
        self._say("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """The daemon drains, and will end."""
        self._say("STOPPING=1", "STATUS=draining")

    async def show_life(self) -> None:
        """Have the daemon heard of as long as its event loop turns."""
        while self.watchdog_s:
            self._say("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / SIGNS_PER_WATCHDOG)

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:  # The daemon works, whoever does not hear of it.
            log.warning("the service manager does not hear %s: %s", lines[0], error.strerror)


NOBODY = ServiceManager()
"""Where this process is no service."""
