"""Profiles: one table whose names and defaults are those of the options; what contradicts a profile is refused."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import click
import pytest

from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from simulator.policies import Settings
from sparrow_py import LocalCluster
from sparrow_py.call_jobs import CallOptions
from sparrow_py.daemon.options import parse
from sparrow_py.errors import InvalidOption
from sparrow_py.job import JobSpec
from sparrow_py.profiles import DEFAULT, JOB, NODE_MONITOR, PAPER, PROFILES, SCHEDULER, completed, profile_of, settings
from tests.support.documents import section

DAEMONS: dict[str, Any] = {SCHEDULER: SchedulerOptions, NODE_MONITOR: NodeMonitorOptions}


def defaults_of(options: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(options)}


def contradicted() -> list[tuple[str, str, Any]]:
    """Room, option and a value of it that the paper's profile does not have."""
    paper, default = PROFILES[PAPER], PROFILES[DEFAULT]
    return [
        (room, name, default[room][name] if default[room][name] != value else value + 6)
        for room in DAEMONS
        for name, value in paper[room].items()
    ]


def flags_of(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    return [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]


# ---- the table -------------------------------------------------------------------------------


@pytest.mark.parametrize("room", DAEMONS)
def test_the_default_profile_is_the_defaults_of_the_options(room: str) -> None:
    defaults = defaults_of(DAEMONS[room])
    assert settings(DEFAULT, room) == {name: defaults[name] for name in settings(DEFAULT, room)}


@pytest.mark.parametrize("of", [JobSpec, CallOptions])
def test_of_jobs_it_has_their_defaults(of: type) -> None:
    defaults = defaults_of(of)
    assert all(settings(profile, JOB).items() <= defaults.items() for profile in PROFILES)


def test_all_profiles_say_the_same_options() -> None:
    names = [{room: set(options) for room, options in rooms.items()} for rooms in PROFILES.values()]
    assert all(one == names[0] for one in names)


def test_the_simulator_s_settings_are_those_of_the_table() -> None:
    assert Settings() == Settings.of(DEFAULT)
    assert {*settings(PAPER, SCHEDULER, NODE_MONITOR), "probe_ratio", "overtaken_max"} == set(defaults_of(Settings))
    paper = Settings.of(PAPER, probe_ratio=3.0)
    assert {name: getattr(paper, name) for name in settings(PAPER, *DAEMONS)} == settings(PAPER, *DAEMONS)
    assert paper.probe_ratio == 3.0


def test_the_paper_s_switches_are_off() -> None:
    """An addition that is made an option one day, and is not in the table, is found here."""
    switches = {name for name, value in defaults_of(Settings).items() if isinstance(value, bool)}
    paper = settings(PAPER, *DAEMONS)
    assert {name: paper[name] for name in switches} == dict.fromkeys(switches, False)


def test_settings_know_their_profile() -> None:
    assert Settings().profile == DEFAULT
    assert Settings.of(PAPER, probe_ratio=1.0).profile == PAPER
    assert Settings.of(PAPER, report_idle=True).profile == ""
    assert profile_of(settings(PAPER, SCHEDULER), SCHEDULER) == PAPER


def test_the_document_has_the_table() -> None:
    found = re.findall(
        r"^\| `(\w+)` \| ([a-z ]+) \| `([^`]+)`[^|]* \| `([^`]+)` \|", section("docs/options.md", "Profiles"), re.M
    )
    wanted = [
        (name, room.replace("_", " "), str(value).lower(), str(PROFILES[DEFAULT][room][name]).lower())
        for room, options in PROFILES[PAPER].items()
        for name, value in options.items()
    ]
    assert found == wanted


# ---- daemons ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", DAEMONS)
def test_a_daemon_has_the_profile_s_values(room: str) -> None:
    options = parse(DAEMONS[room], ["--profile", PAPER])
    assert {name: getattr(options, name) for name in settings(PAPER, room)} == settings(PAPER, room)
    assert options.of_profile()["profile"] == PAPER


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_profile_may_come_from_anywhere(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "options.toml"
    path.write_text('profile = "paper"\n')
    if source == "environment":
        monkeypatch.setenv("SPARROW_PROFILE", PAPER)
    flags = ["--config", str(path)] if source == "file" else []
    assert parse(SchedulerOptions, flags).order == "reserved"


@pytest.mark.parametrize(("room", "name", "value"), contradicted())
def test_an_option_that_contradicts_the_profile_is_refused_with_both_names(room: str, name: str, value: Any) -> None:
    for flags in (["--profile", PAPER, *flags_of(name, value)], [*flags_of(name, value), "--profile", PAPER]):
        with pytest.raises(click.ClickException) as caught:
            parse(DAEMONS[room], flags)
        said = caught.value.message
        assert said.startswith(f"{name}: ")
        assert "profile 'paper'" in said
        assert "\n" not in said
    parse(DAEMONS[room], ["--profile", PAPER, *flags_of(name, settings(PAPER, room)[name])])
    assert getattr(parse(DAEMONS[room], ["--profile", DEFAULT, *flags_of(name, value)]), name) == value


def test_the_environment_may_contradict_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_ORDER", "oldest")
    with pytest.raises(click.ClickException, match=r"SPARROW_ORDER: 'oldest' .* 'reserved' with profile 'paper'"):
        parse(SchedulerOptions, ["--profile", PAPER])


def test_options_that_are_made_in_a_program_are_held_to_it() -> None:
    with pytest.raises(InvalidOption, match="with profile 'paper'"):
        SchedulerOptions(profile=PAPER)
    assert SchedulerOptions(profile=PAPER, **settings(PAPER, SCHEDULER)).order == "reserved"


@pytest.mark.parametrize("room", DAEMONS)
def test_a_profile_that_is_not_there(room: str) -> None:
    with pytest.raises(click.ClickException, match="profile: 'papers' is not valid; allowed: paper, default"):
        parse(DAEMONS[room], ["--profile", "papers"])


def test_an_embedded_cluster_refuses_one_that_is_not_there() -> None:
    with pytest.raises(InvalidOption, match="profile: 'papers'"):
        LocalCluster(profile="papers")


def test_given_values_complete_a_profile() -> None:
    found = completed(DEFAULT, [SCHEDULER], {"order": "oldest", "port": 1})
    assert found == settings(DEFAULT, SCHEDULER) | {"order": "oldest"}
