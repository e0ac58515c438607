"""How node monitors are started on other machines: files of hosts, allocations, and the commands' words."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_monitor.options import NodeMonitorOptions
from sparrow_py.daemon.options import parse
from sparrow_py.errors import InvalidRequest
from sparrow_py.remote.launching import (
    Allocation,
    Host,
    allocation,
    parse_hosts,
    shell_line,
    srun_command,
    ssh_command,
)

IN_SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_ON_NODE": "16", "SLURMD_NODENAME": "ant"}
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def test_a_file_of_hosts() -> None:
    text = "# ours\nant\nada@bee slots=8  # the large one\n\n10.0.0.3\nant\n"
    assert parse_hosts(text) == [Host("ant"), Host("ada@bee", 8), Host("10.0.0.3")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 hosts"),
        ("# none\n", "0 hosts"),
        ("ant bee", "ant bee"),
        ("ant slots=many", "slots=many"),
        ("ant slots=0", "slots"),
        ("ant slots=2 more", "more"),
        ("ant slots=2\nant", "'ant' with one number of slots"),
        ("-oProxyCommand=evil", "-oProxyCommand"),
    ],
)
def test_files_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse_hosts(text, "hosts of f")


def test_the_node_monitor_gets_flags_that_it_has_and_the_secret_from_its_input() -> None:
    line = shell_line("/opt/python", "/home/ada", ["--scheduler", "10.0.0.1:1", "--slots", "2"])
    assert line.startswith("IFS= read -r SPARROW_TOKEN && export SPARROW_TOKEN && ")
    words = shlex.split(line.rpartition("exec ")[2].removesuffix("; }"))
    assert words[:4] == ["/opt/python", "-P", "-m", "node_monitor"]
    flags = [word for word in words[4:] if word not in ("--host", "0.0.0.0")]  # Which takes a token.
    assert parse(NodeMonitorOptions, flags, environment=False).slots == 2


@pytest.mark.parametrize("named", [[], ["--python-path", "/usr"]])
def test_tasks_look_for_modules_where_the_node_monitor_starts(named: list[str]) -> None:
    line = shell_line("python", "/home/ada", ["--scheduler", "10.0.0.1:1", *named])
    flags = shlex.split(line.rpartition("node_monitor ")[2].removesuffix("; }"))
    options = parse(
        NodeMonitorOptions, [flag for flag in flags if flag not in ("--host", "0.0.0.0")], environment=False
    )
    assert options.python_path == (*named[1:], ".")


@given(st.lists(WORDS, max_size=3), WORDS)
def test_no_word_means_anything_to_a_shell(flags: list[str], directory: str) -> None:
    line = shell_line("python", directory, flags)
    assert shlex.split(ssh_command(Host("ant"), line)[-1]) == ["sh", "-c", line]
    words = shlex.split(line.removesuffix("; }"))
    assert words[words.index("cd") + 1] == directory
    assert words[len(words) - len(flags) - 2 :] == [*flags, "--python-path", "."]


def test_the_options_of_ssh_stand_before_the_host() -> None:
    command = ssh_command(Host("ada@bee"), "true", ["-p", "2222"])
    assert (command[0], command[-4:]) == ("ssh", ["-p", "2222", "ada@bee", "sh -c true"])


def test_an_allocation_as_slurm_describes_it() -> None:
    found = allocation(IN_SLURM)
    assert found == Allocation(3, 16, "ant")
    command = srun_command(found, "true", ["--gres=none"])
    assert {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=16", "--gres=none"} < set(command)
    assert command[-3:] == ["sh", "-c", "true"]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"SLURM_JOB_ID": ""}, "inside an allocation, by sbatch or salloc"), ({"SLURM_JOB_NUM_NODES": "x"}, "NUM_NODES")],
)
def test_no_allocation(change: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        allocation(IN_SLURM | change)
