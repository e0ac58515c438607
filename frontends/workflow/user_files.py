"""Where a user's own files about workflows are, unless options name others: history and calibration."""

from __future__ import annotations

import os
from pathlib import Path

STATE_VARIABLE = "SPARROW_WORKFLOW_STATE"
"""The environment variable that names the directory of both."""
SUBFOLDER = Path("sparrow-py", "workflow")


def state_directory() -> Path:
    """The directory of the user's state, by the XDG rules if no variable names another."""
    named = os.environ.get(STATE_VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / SUBFOLDER


def history_path() -> Path:
    """The history of all workflows that this user has run."""
    return state_directory() / "history.sqlite"


def calibration_path() -> Path:
    """The rates that `sparrow workflow calibrate` has measured."""
    return state_directory() / "calibration.json"
