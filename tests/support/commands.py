"""Commands that are run within the test's own process."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def run_main(
    main: Callable[[list[str]], object], capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command's `main`."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    captured = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, captured.out, captured.err
