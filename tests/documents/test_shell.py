"""What the documents say to type can be parsed, and names commands, options, modules and targets that there are."""

import importlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from tests.support.documents import DOCUMENTS, ROOT, blocks, code_spans

PROGRAMS = {"sparrow": "frontends.cli", "sparrow-scheduler": "scheduler", "sparrow-node-monitor": "node_monitor"}
PYTHONS = ("python", "python3", ".venv/bin/python")
PACKAGES = ("benchmarks", "frontends", "loadgen", "node_monitor", "scheduler", "simulator")
SPOKEN_OF = (
    *PROGRAMS.values(), "loadgen", "simulator", "node_monitor.conformance", "scheduler.flow", "benchmarks.flow",
    *(
        f"benchmarks.{name}"
        for name in ("additions", "all", "chaos", "faults_peers", "many_schedulers", "peers", "shortest_task")
    ),
)  # fmt: skip
"""Whose options stand alone in the text, too."""
FOREIGN = {"--name", "--no-name", "--name-of-field", "--nthreads", "--user"}
"""Options that are placeholders, or of Dask and pip."""


def typed(path: Path) -> list[str]:
    """Blocks of shell, and commands that stand alone, indented."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    return [*blocks(path, "sh"), *re.findall(r"^    ((?:make|python|sparrow)[ -].*)$", text, re.M)]


def commands(shell: str) -> Iterator[list[str]]:
    """The simple commands, as words, without variables that are set before one."""
    shell = re.sub(r"(^|\s)#.*$", "", shell.replace("\\\n", " "), flags=re.M)
    lexer = shlex.shlex(shell, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.commenters = " \t", ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("();<>|&\n"):
            if words:
                yield words
            words = []
        elif words or not re.match(r"\w+=", word):
            words.append(word)


@cache
def main_of(module: str) -> click.Command:
    """The command of `python -m module`."""
    package = (ROOT / module.replace(".", "/")).is_dir()
    found = vars(importlib.import_module(f"{module}.__main__" if package else module))
    command: click.Command = next(found[name] for name in ("report_command", "main") if name in found)
    return command


def called(words: list[str]) -> tuple[click.Command, list[str]] | None:
    """The command of ours that these words call, and what they give it; None if it is another's."""
    if words[0] in PROGRAMS:
        command, arguments = main_of(PROGRAMS[words[0]]), words[1:]
    elif words[0] in PYTHONS and words[1:2] == ["-m"] and len(words) > 2 and words[2].partition(".")[0] in PACKAGES:
        command, arguments = main_of(words[2]), words[3:]
    else:
        return None
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        _, below, arguments = command.resolve_command(click.Context(command), arguments)
        assert below is not None
        command = below
    return command, arguments


def with_all_below(command: click.Command) -> Iterator[click.Command]:
    """The command, and those below it."""
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from with_all_below(below)


def options(command: click.Command) -> set[str]:
    """All that the command knows."""
    context = click.Context(command, **command.context_settings)
    parameters = command.get_params(context)
    return {name for one in parameters for name in [*one.opts, *one.secondary_opts]}


def check_make(arguments: list[str]) -> None:
    """Raise unless the Makefile has these targets and variables."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for argument in arguments:
        name, is_variable, _ = argument.partition("=")
        line = rf"^{re.escape(name)}\s*\?=" if is_variable else rf"^{re.escape(name)}:"
        assert re.search(line, makefile, re.M), f"the Makefile has no {argument}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_are_shell_and_call_what_there_is(path: Path) -> None:
    for shell in typed(path):
        parsed = subprocess.run(["bash", "-n"], input=shell, text=True, capture_output=True, check=False)
        assert not parsed.stderr, f"{path.name}: {parsed.stderr}"
        for words in commands(shell):
            if words[0] == "make":
                check_make(words[1:])
            elif ours := called(words):
                command, arguments = ours
                context = click.Context(command, **command.context_settings)
                try:
                    command.make_parser(context).parse_args(list(arguments))
                except click.UsageError as error:
                    pytest.fail(f"{path.name}: {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_within_the_text_have_the_options_that_it_names(path: Path) -> None:
    known = FOREIGN.union(*(options(one) for module in SPOKEN_OF for one in with_all_below(main_of(module))))
    for span in code_spans(path.read_text("utf-8")):
        if re.fullmatch(r"make( [a-z]+| [A-Z]+=\S*)+", span):
            check_make(span.split()[1:])
        elif span.startswith("--"):
            assert span.split()[0].partition("=")[0] in known, f"{path.name}: {span}"
        elif span.startswith((*PROGRAMS, *PYTHONS)) and not re.search("NAME|…", span):
            words = shlex.split(span)
            if ours := called(words):
                given = {word.partition("=")[0] for word in before_dashes(ours[1]) if word.startswith("--")}
                assert given <= options(ours[0]), f"{path.name}: {span}"


def before_dashes(words: list[str]) -> list[str]:
    """What comes before `--`."""
    return words[: words.index("--")] if "--" in words else words
