"""The distribution that all packages come in, and how to install its extras."""

from __future__ import annotations

DISTRIBUTION = "sparrow-py"


def install_command(extra: str) -> str:
    """What to type for an extra. A clone is named by its path: its version need not be at any package index."""
    return f"pip install '{DISTRIBUTION}[{extra}]', of a clone pip install 'PATH-OF-ITS-DIRECTORY[{extra}]'"
