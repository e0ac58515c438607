"""The commands of `python -m benchmarks.habits`, each from a module of its own."""

from __future__ import annotations

import click

from benchmarks.habits import dask_schedulers, joblib_backends


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Programs of other libraries' users on sparrow-py, beside those libraries."""


main.add_command(joblib_backends.main)
main.add_command(dask_schedulers.main)

if __name__ == "__main__":
    main()
