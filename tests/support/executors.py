"""Interpreters whose Python workers do not start."""

import sys
from pathlib import Path


def without_sparrow(directory: Path) -> Path:
    """An interpreter that finds the standard library alone."""
    return _script(directory / "python-alone", f'exec {sys.executable} -I -S "$@"')


def until_mended(directory: Path, mended: Path, says: str) -> Path:
    """An interpreter that ends with code 3 and these words whenever it is to run a module, until `mended` is there."""
    lines = f'case "$1" in -s) [ -e {mended} ] || {{ echo "{says}" >&2; exit 3; }};; esac\nexec {sys.executable} "$@"'
    return _script(directory / "python-at-times", lines)


def _script(path: Path, lines: str) -> Path:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path
