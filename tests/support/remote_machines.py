"""Stand-ins for ssh and srun, which run on this machine what they would run on others; and a real sshd on loopback."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.daemons import free_ports
from tests.support.waiting import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SSH_STAND_IN = """#!/bin/sh
# The command is the last argument, and a shell of the user's runs it.
for command; do :; done
exec sh -c "$command"
"""
SRUN_STAND_IN = f"""#!{sys.executable} -I
import os, subprocess, sys, threading
words = sys.argv[1:]
count = next(int(word.partition("=")[2]) for word in words if word.startswith("--ntasks="))
command = words[next(index for index, word in enumerate(words) if not word.startswith("--")) :]
tasks = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(count)]
def pump():  # All tasks get all of it, and its end; it ends with them, whatever becomes of its input.
    while data := os.read(0, 4096):
        for task in tasks:
            task.stdin.write(data)
            task.stdin.flush()
    for task in tasks:
        task.stdin.close()
threading.Thread(target=pump, daemon=True).start()
sys.exit(max(task.wait() for task in tasks))
"""


def stand_in(directory: Path, name: str) -> Path:
    """The directory, with a program of this name in it."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text({"ssh": SSH_STAND_IN, "srun": SRUN_STAND_IN}[name])
    program.chmod(0o755)
    return directory


@contextlib.contextmanager
def sshd(directory: Path) -> Iterator[list[str]]:
    """An sshd on loopback that lets this user in; the options that ssh takes for it."""
    assert SSHD is not None
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(key, check=True)
    (port,) = free_ports(1)
    config = directory / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\n"
        "StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Where it confines itself to.
    log = directory / "sshd.log"
    with log.open("wb") as stderr, subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=stderr) as daemon:
        try:
            wait_until(lambda: "listening" in log.read_text() or daemon.poll() is not None, "sshd to listen")
            yield [
                "-p", str(port), "-i", f"{directory}/user", "-F", "none",
                "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={directory}/known",
            ]  # fmt: skip
        finally:
            daemon.terminate()
