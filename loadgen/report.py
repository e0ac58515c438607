"""The report of a load run: one self-contained HTML page, made from the run's records.

    python -m loadgen.report OUT_DIR

writes OUT_DIR/report.html anew. All numbers are computed from the tables, by `measures.figures`.
The page has no script and loads nothing. The same run gives the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparrow_py.daemon.command_group import exit_code, one_line
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption, SparrowError

REPORT_FILE = "report.html"


def write_report(directory: str | Path) -> Path:
    """Make the report of the run that is recorded in the directory; returns the path of the page.

    `InvalidOption` if the directory holds no run, or if it cannot be written to.
    """
    try:
        import matplotlib  # noqa: F401 (drawing imports it, when it is too late to say this in one line)

        from loadgen.recorded import read_run
        from loadgen.report_page import render
    except ModuleNotFoundError as error:
        allowed = f"nothing without {error.name}: {install_command('loadgen')}"
        raise InvalidOption("directory", str(directory), allowed) from None
    path = Path(directory) / REPORT_FILE
    page = render(read_run(directory))
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        raise InvalidOption("directory", str(directory), f"one that can be written to ({error.strerror})") from None
    return path


@click.command("loadgen.report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", metavar="OUT_DIR")
def report_command(directory: str) -> None:
    """Write OUT_DIR/report.html anew from the records of a load run in OUT_DIR."""
    click.echo(write_report(directory))


def main() -> None:
    """Run the command; an error is one line and an exit code."""
    try:
        report_command(standalone_mode=False)
    except (click.Abort, click.ClickException, SparrowError) as error:
        click.echo(f"loadgen.report: {one_line(error)}", err=True)
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
