"""Options: one name in flag, environment and file, in that order of precedence."""

import dataclasses
import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from node_monitor.daemon import _first_of, advertised
from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.options import LOOPBACK_HOSTS, command, option, parse, parse_pairs
from sparrow_py.errors import InvalidOption

NO_ADDRESSES = ("::::", "::1", ":80", "ant:", "ant:x", "ant:65536", "[::1", "[::1]x", "a b", "http://ant:80")
ALL_ADDRESSES = ("0.0.0.0", "0.0.0.0:80", "::", "[::]", "[::]:80")
"""Where a daemon may listen, and nobody can dial it."""
TOKEN = "0123456789abcdef0123456789abcdef"


@dataclasses.dataclass(kw_only=True)
class Options:
    """One option of each kind."""

    number: int = option(1, "A number.")
    ratio: float = option(0.5, "A ratio.")
    name: str = option("", "A name.")
    where: str | None = option(None, "A place.")
    on: bool = option(False, "A switch.")
    many: tuple[str, ...] = option(("x",), "Several.", many=True)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_TOKEN", raising=False)


def test_defaults() -> None:
    assert parse(Options, []) == Options(number=1, ratio=0.5, name="", where=None, on=False, many=("x",))


def test_flags() -> None:
    flags = ["--number", "2", "--ratio", "1.5", "--name", "n", "--where", "w", "--on", "--many", "a", "--many", "b"]
    assert parse(Options, flags) == Options(number=2, ratio=1.5, name="n", where="w", on=True, many=("a", "b"))


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NUMBER": "3", "RATIO": "2", "NAME": "e", "WHERE": "w", "ON": "true", "MANY": "a b"}.items():
        monkeypatch.setenv(f"SPARROW_{name}", value)
    assert parse(Options, []) == Options(number=3, ratio=2.0, name="e", where="w", on=True, many=("a", "b"))


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('number = 4\nratio = 3\nname = "f"\nwhere = "w"\non = true\nmany = ["a", "b"]\n')
    assert parse(Options, ["--config", str(path)]) == Options(
        number=4, ratio=3.0, name="f", where="w", on=True, many=("a", "b")
    )


def test_one_value_in_a_file_for_an_option_that_takes_several(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('many = "only"\n')
    assert parse(Options, ["--config", str(path)]).many == ("only",)


def test_flag_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "options.toml"
    path.write_text('number = 4\nname = "file"\nwhere = "file"\n')
    monkeypatch.setenv("SPARROW_CONFIG", str(path))
    monkeypatch.setenv("SPARROW_NUMBER", "3")
    monkeypatch.setenv("SPARROW_NAME", "environment")
    options = parse(Options, ["--number", "2"])
    assert (options.number, options.name, options.where, options.ratio) == (2, "environment", "file", 0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numer = 1", "unknown options: numer"),
        ("number = ", "TOML"),
        ('number = "x"', "number"),
        ("number = 1\nnumber = 2", "TOML"),
    ],
)
def test_a_bad_file_is_an_error_of_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text)
    answer = CliRunner().invoke(command("daemon", Options, lambda _: None, ""), ["--config", str(path)])
    assert answer.exit_code == 2
    assert answer.output.count("\n") == 1
    assert said in answer.output


@pytest.mark.parametrize(
    ("text", "shown", "allowed"),
    [
        ("number = 1.5", "1.5", "a whole number"),
        ("number = 1.0", "1.0", "a whole number"),
        ("number = true", "True", "a whole number"),
        ("number = '4'", "'4'", "a whole number"),
        ("number = [4]", "[4]", "a whole number"),
        ("ratio = true", "True", "a number"),
        ("ratio = '0.5'", "'0.5'", "a number"),
        ("name = 7", "7", "a text"),
        ("name = false", "False", "a text"),
        ("where = ['w']", "['w']", "a text"),
        ("on = 1", "1", "true or false"),
        ("on = 'true'", "'true'", "true or false"),
        ("many = 1", "1", "a text"),
        ("many = ['a', 2]", "2", "a text"),
        ("many = {a = 'b'}", "{'a': 'b'}", "a text"),
    ],
)
def test_a_value_of_another_type_in_a_file_is_refused(tmp_path: Path, text: str, shown: str, allowed: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text)
    answer = CliRunner().invoke(command("daemon", Options, lambda _: None, ""), ["--config", str(path)])
    assert answer.exit_code == 2
    option = text.partition(" ")[0]
    assert answer.output == f"Error: {path}: {option}: {shown} is not valid; allowed: {allowed}\n"


@pytest.mark.parametrize("text", [f"number = {'9' * 5000}", f"ratio = {'9' * 400}"])
def test_a_number_in_a_file_that_is_too_long_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text)
    answer = CliRunner().invoke(command("daemon", Options, lambda _: None, ""), ["--config", str(path)])
    assert (answer.exit_code, answer.output.count("\n")) == (2, 1), answer.output
    assert "options.toml" in answer.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    answer = CliRunner().invoke(
        command("daemon", Options, lambda _: None, ""), ["--config", str(tmp_path / "none.toml")]
    )
    assert answer.exit_code == 2
    assert answer.output.count("\n") == 1
    assert "none.toml" in answer.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--nonsense"], "--nonsense"),
        (["--number", "x"], "'x'"),
        (["--number"], "--number"),
        (["argument"], "argument"),
        (["--ratio", "1,5"], "'1,5'"),
    ],
)
def test_bad_flags_are_an_error_of_one_line(flags: list[str], said: str) -> None:
    answer = CliRunner().invoke(command("daemon", Options, lambda _: None, ""), flags)
    assert answer.exit_code == 2
    assert answer.output.count("\n") == 1
    assert said in answer.output


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("number", "x", "a whole number"),
        ("number", "1.5", "a whole number"),
        ("ratio", "1,5", "a number"),
        ("on", "perhaps", "true or false"),
    ],
)
def test_a_value_of_another_type_is_said_with_the_name_that_was_used_and_what_is_allowed(
    name: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, said = command("daemon", Options, lambda _: None, ""), f"{value!r} is not valid; allowed: {allowed}\n"
    if name != "on":
        answer = CliRunner().invoke(daemon, [f"--{name}", value])
        assert (answer.exit_code, answer.output) == (2, f"Error: {name}: {said}")
    monkeypatch.setenv(f"SPARROW_{name.upper()}", value)
    answer = CliRunner().invoke(daemon, [])
    assert (answer.exit_code, answer.output) == (2, f"Error: SPARROW_{name.upper()}: {said}")


def test_help_names_every_option() -> None:
    for options in (SchedulerOptions, NodeMonitorOptions):
        text = CliRunner().invoke(command("daemon", options, lambda _: None, "What it is."), ["--help"]).output
        for field in dataclasses.fields(options):  # type: ignore[arg-type]
            if field.init:
                assert (field.metadata["flag"] or "--" + field.name.replace("_", "-")) in text
                assert field.metadata["help"]


@pytest.mark.parametrize(
    ("options", "flags", "name"),
    [
        (SchedulerOptions, ["--port", "-1"], "port"),
        (SchedulerOptions, ["--port", "65536"], "port"),
        (SchedulerOptions, ["--unplaced-tasks-max", "0"], "unplaced_tasks_max"),
        (SchedulerOptions, ["--user-weight", "ann"], "user_weight"),
        (SchedulerOptions, ["--user-weight", "ann=0"], "user_weight"),
        (SchedulerOptions, ["--user-weight", "ann=nan"], "user_weight"),
        (SchedulerOptions, ["--user-weight", "ann=much"], "user_weight"),
        (SchedulerOptions, ["--user-priority", "ann=1.5"], "user_priority"),
        (SchedulerOptions, ["--user-priority", "ann=1000001"], "user_priority"),
        (SchedulerOptions, ["--user-priority", f"ann={-(10**30)}"], "user_priority"),
        *((SchedulerOptions, ["--heartbeat-s", bad], "heartbeat_s") for bad in ("0", "1e-9", "0.009", "nan")),
        (NodeMonitorOptions, ["--heartbeat-s", "0.009"], "heartbeat_s"),
        (SchedulerOptions, ["--drain-timeout-s", "-1"], "drain_timeout_s"),
        (SchedulerOptions, ["--drain-timeout-s", "nan"], "drain_timeout_s"),
        (SchedulerOptions, ["--frame-bytes-max", "1"], "frame_bytes_max"),
        (SchedulerOptions, ["--link-backlog-bytes-max", "20000"], "link_backlog_bytes_max"),
        (SchedulerOptions, ["--log-level", "loud"], "log_level"),
        (SchedulerOptions, ["--host", "0.0.0.0"], "host"),
        (SchedulerOptions, ["--host", "::"], "host"),
        (NodeMonitorOptions, ["--slots", "-1"], "slots"),
        (NodeMonitorOptions, ["--count", "0"], "count"),
        (NodeMonitorOptions, ["--queue", "lifo"], "queue"),
        (NodeMonitorOptions, ["--attr", "gpu"], "attr"),
        (NodeMonitorOptions, ["--attr", "=x"], "attr"),
        (NodeMonitorOptions, ["--sql-data", "relative"], "sql_data: 'relative' "),
        (NodeMonitorOptions, ["--sql-data", "/data", "--sql-data", "ada=data"], "sql_data: 'ada=data' "),
        (NodeMonitorOptions, ["--resource", "gpu=-1"], "resource: 'gpu=-1' "),
        (SchedulerOptions, ["--user-weight", "bob=1", "--user-weight", "ann=-1"], "user_weight: 'ann=-1' "),
        (SchedulerOptions, ["--user-priority", "ann=high"], "user_priority: 'ann=high' "),
        (SchedulerOptions, ["--probe-ratio-max", "0.5"], "probe_ratio_max"),
        (NodeMonitorOptions, ["--scheduler", "somewhere"], "scheduler"),
        (NodeMonitorOptions, ["--scheduler", ""], "scheduler"),
        (NodeMonitorOptions, ["--get-task-timeout-s", "0"], "get_task_timeout_s"),
        *((NodeMonitorOptions, ["--lease-s-max", bad], "lease_s_max") for bad in ("0", "0.05", "2e6", "nan")),
        *((NodeMonitorOptions, ["--yield-within-s", bad], "yield_within_s") for bad in ("0", "-1", "3601", "nan")),
        *((NodeMonitorOptions, ["--advertise", address], f"advertise: '{address}' ") for address in NO_ADDRESSES),
        *((NodeMonitorOptions, ["--advertise", address], f"advertise: '{address}' ") for address in ALL_ADDRESSES),
        (NodeMonitorOptions, ["--node-id", "a b"], "node_id: 'a b' "),
        (NodeMonitorOptions, ["--node-id", "a\tb"], "node_id: 'a\\tb' "),
        (NodeMonitorOptions, ["--node-id", "\N{NO-BREAK SPACE}"], "node_id"),
        (NodeMonitorOptions, ["--node-id", "n" * 257], "node_id"),
        (NodeMonitorOptions, ["--python-path", ".", "--python-path", "/no/such"], "python_path: '/no/such' "),
        (NodeMonitorOptions, ["--reservations-per-user-max", "0"], "reservations_per_user_max"),
    ],
)
def test_a_value_that_cannot_be_names_its_option(options: type, flags: list[str], name: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        parse(options, flags)
    assert caught.value.message.startswith(name)
    assert "allowed: " in caught.value.message


def test_the_shortest_heartbeat() -> None:
    assert parse(SchedulerOptions, ["--heartbeat-s", "0.01"]).heartbeat_s == 0.01


def test_weights_and_priorities() -> None:
    options = parse(SchedulerOptions, ["--user-weight", "ann=2.5", "--user-priority", "bob=-3"])
    assert (options.weight("ann"), options.weight("bob")) == (2.5, 1.0)
    assert (options.priority("ann"), options.priority("bob")) == (0, -3)


def test_schedulers_with_commas_and_attributes() -> None:
    flags = ["--scheduler", "a:1,b:2", "--scheduler", "file:/x", "--attr", "gpu=yes", "--attr", "zone=a=b"]
    options = parse(NodeMonitorOptions, flags)
    assert options.scheduler == ("a:1", "b:2", "file:/x")
    assert options.attributes == {"gpu": "yes", "zone": "a=b"}


@pytest.mark.parametrize("name", ["ant.example:20504", "a/b-c_d@e", "Ameise-ä", "n" * (256 - len("/10000"))])
def test_what_nodes_may_be_called(name: str) -> None:
    assert parse(NodeMonitorOptions, ["--node-id", name]).node_id == name


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ant", "ant:7"),
        ("ant:80", "ant:80"),
        ("10.0.0.1", "10.0.0.1:7"),
        ("[::1]", "[::1]:7"),
        ("[::1]:80", "[::1]:80"),
    ],
)
def test_an_address_that_is_advertised_gets_the_daemons_port_if_it_has_none(address: str, told: str) -> None:
    option = parse(NodeMonitorOptions, ["--advertise", address]).advertise
    assert advertised("127.0.0.1:7", option, ["127.0.0.1:1"]) == told


@pytest.mark.parametrize("form", ["{address}", "dns:127.0.0.1:{port}", "file:{path}"])
async def test_one_bound_to_all_addresses_is_reached_where_its_schedulers_reach_it(form: str, tmp_path: Path) -> None:
    path = tmp_path / "schedulers"
    path.write_text("127.0.0.1:1\n")
    source = form.format(address="127.0.0.1:1", port=1, path=path)
    options = parse(NodeMonitorOptions, ["--scheduler", f"file:{tmp_path}/none,{source}"])
    found = await _first_of(options, "0.0.0.0:7")
    assert advertised("0.0.0.0:7", options.advertise, found) == "127.0.0.1:7"
    assert await _first_of(options, "127.0.0.1:7") == []


def test_one_whose_schedulers_nobody_knows_yet_is_reached_by_its_name() -> None:
    assert advertised("0.0.0.0:7", "", []) == f"{socket.gethostname()}:7"


def test_pairs() -> None:
    assert parse_pairs("attr", ("a=1", "b=")) == {"a": "1", "b": ""}
    with pytest.raises(InvalidOption, match="attr"):
        parse_pairs("attr", ("a",))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (NodeMonitorOptions, "--attr"),
        (NodeMonitorOptions, "--resource"),
        (SchedulerOptions, "--user-weight"),
        (SchedulerOptions, "--user-priority"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(options: type, flag: str) -> None:
    for value in "21":
        with pytest.raises(click.ClickException) as caught:
            parse(options, [flag, "a=1", flag, "b=1", flag, f"a={value}"])
        name = flag[2:].replace("-", "_")
        said = f"{name}: 'a={value}' is not valid; allowed: each key once; 'a' is '1' already"
        assert caught.value.message == said


# ---- the token -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_loopback_needs_no_token(host: str) -> None:
    assert not parse(SchedulerOptions, ["--host", host]).guarded


def test_beyond_loopback_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    assert parse(SchedulerOptions, ["--host", "0.0.0.0", "--token-file", str(path)]).tokens.dialling == TOKEN
    monkeypatch.setenv("SPARROW_TOKEN", TOKEN[::-1])
    assert parse(SchedulerOptions, ["--host", "0.0.0.0"]).tokens.dialling == TOKEN[::-1]
    assert parse(SchedulerOptions, ["--host", "0.0.0.0", "--token-file", str(path)]).tokens.dialling == TOKEN
