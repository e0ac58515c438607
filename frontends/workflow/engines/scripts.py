"""The parts that scripts of all engines have alike: a head, a command line, comments, names of Python variables.

A generator gives `script` its imports, its definitions and the body of `run`; names of relations are kept wherever
Python and the engine let them be.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import indent as indented

from frontends.workflow.engines.base import THREADS_VARIABLE
from frontends.workflow.ir.dag import Dag, Input, Operator, Scan
from frontends.workflow.ir.printing import printed_operator

COMMENT_CHARS_MAX = 110
"""Characters of a comment, without its indentation; longer ones end in an ellipsis."""
INDENT = "    "

THREADS = f'THREADS = int(os.environ.get("{THREADS_VARIABLE}") or os.cpu_count() or 1)'
"""Defines how many threads a script may use; needs `os`."""

ITERATIONS_EXCEEDED = '''\
class IterationsExceeded(Exception):
    """The condition of a loop still holds after the most iterations that it may make: (loop, iterations)."""
'''
"""Defines what a loop raises; run by whoever runs scripts into `errors.IterationsExceeded`."""

WRITE_TABLE = '''\
def write(table: pa.Table, path: str) -> None:
    """Beside the path, then renamed: the file is there whole or not at all. Dictionaries of numbers cost too much."""
    texts = [field.name for field in table.schema if not pa.types.is_primitive(field.type)]
    pq.write_table(table, f"{path}.partial", use_dictionary=texts)
    os.replace(f"{path}.partial", path)
'''
"""Defines `write` for Arrow tables; needs `os`, `pyarrow as pa` and `pyarrow.parquet as pq`."""

_MAIN = '''\
def named_paths(given: list[str], names: tuple[str, ...], option: str) -> dict[str, str]:
    """{name: path} of arguments NAME=PATH; each of the names once."""
    found = {}
    for argument in given:
        name = next((one for one in sorted(names, key=len, reverse=True) if argument.startswith(f"{one}=")), None)
        if name is None:
            sys.exit(f"{option} {argument}: write NAME=PATH, where NAME is one of {', '.join(names)}")
        found[name] = argument[len(name) + 1 :]
    if missing := [name for name in names if name not in found]:
        sys.exit(f"{option} {missing[0]}=PATH is missing")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--output", action="append", default=[], metavar="NAME=PATH")
    arguments = parser.parse_args()
    run(named_paths(arguments.input, INPUTS, "--input"), named_paths(arguments.output, OUTPUTS, "--output"))


if __name__ == "__main__":
    main()
'''


def script(
    engine: str,
    job: Dag,
    body: Sequence[str],
    *,
    standard: Collection[str] = (),
    imports: Sequence[str] = (),
    definitions: Sequence[str] = (),
) -> str:
    """The whole text of a script.

    body: lines of `run`, without its indentation; a line may hold line breaks, which are indented, too, so texts with
    line breaks have to be written with escapes. standard: modules of the standard library; imports: whole statements
    for other packages. definitions: what stands before `run`, each with its line breaks.
    """
    inputs = [one.name for one in job.operators if isinstance(one, Scan | Input)]
    standard_imports = [f"import {module}" for module in sorted({"argparse", "sys", *standard})]
    parts = [
        _head(engine, job, inputs),
        "\n".join([*standard_imports, *(["", *imports] if imports else [])]),
        f"INPUTS = {tuple_text(inputs)}\nOUTPUTS = {tuple_text(job.results)}",
    ]
    assignments = [one for one in definitions if not one.startswith(("def ", "class ", "@"))]
    functions = [one for one in definitions if one.startswith(("def ", "class ", "@"))]
    constants = "\n".join([parts.pop(), *(one.rstrip("\n") for one in assignments)])
    run = "def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:\n" + indented("\n".join(body), INDENT)
    top = "\n\n".join([*parts, constants])
    return "\n\n\n".join([top, *(one.strip("\n") for one in functions), run.rstrip("\n"), _MAIN])


def _head(engine: str, job: Dag, inputs: Iterable[str]) -> str:
    shown = ", ".join(job.results)
    shown = shown if len(shown) <= 80 else f"{shown[:79]}…"
    return '"""' + _plain(f"A job of a workflow for {engine}: it makes {shown}.") + "\n\n" + _usage() + '"""'


def _usage() -> str:
    return (
        "Run it: python job.py --input NAME=PATH.parquet … --output NAME=PATH.parquet … (each of INPUTS and OUTPUTS)\n"
    )


def _plain(text: str) -> str:
    """The text without what would end a docstring or begin an escape."""
    return text.replace("\\", "/").replace('"""', "'''").replace('"', "'")


def comment(operator: Operator) -> str:
    """`# page_rank1 = AGGREGATE links … (pagerank.beer:8:3)`: what the next statements do, and its place."""
    text = " ".join(printed_operator(operator).split("\n")[0].split())
    text = "".join(character if character.isprintable() else "·" for character in text)
    place = "" if operator.at is None else f" ({_plain(str(operator.at)) if str(operator.at).isprintable() else '·'})"
    room = COMMENT_CHARS_MAX - len(place)
    return f"# {text if len(text) <= room else text[: room - 1] + '…'}{place}"


def tuple_text(values: Iterable[str]) -> str:
    """The Python text of a tuple of texts: on one line if there is room, else a line for each."""
    listed = [string_text(value) for value in values]
    one_line = f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
    return one_line if len(one_line) <= COMMENT_CHARS_MAX else "(\n" + "".join(f"    {one},\n" for one in listed) + ")"


def string_text(value: str) -> str:
    """The Python text of a string, in double quotes unless it has some."""
    text = repr(value)
    if text.startswith("'") and '"' not in value:
        return '"' + text[1:-1].replace("\\'", "'") + '"'
    return text


def python_names(names: Iterable[str], taken: Collection[str] = ()) -> Mapping[str, str]:
    """A Python identifier for each name: itself if it can be, else nearly so; all differ, also from those taken."""
    used = {*taken, *keyword.kwlist, *dir(builtins)}
    used |= {"run", "main", "inputs", "outputs", "named_paths", "INPUTS", "OUTPUTS", "argparse", "sys", "os"}
    found: dict[str, str] = {}
    for name in names:
        stem = re.sub(r"\W+", "_", name.encode("ascii", "ignore").decode()) or "r"
        stem = f"r_{stem}" if stem[0].isdigit() else stem
        identifier, number = (f"{stem}_" if stem in used else stem), 2
        while identifier in used:
            identifier, number = f"{stem}_{number}", number + 1
        used.add(identifier)
        found[name] = identifier
    return found
