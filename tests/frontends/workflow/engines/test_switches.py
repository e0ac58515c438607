"""A rule that is off changes scripts, unless the engine says why it does not."""

import pytest

from frontends.workflow.engines import engine, engines
from frontends.workflow.engines.base import ALL_RULES, Engine, Rules
from frontends.workflow.errors import Inexpressible
from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.running.errors import NoEngines
from frontends.workflow.running.options import allowed
from tests.support.workflow_samples import max_property_price, page_rank

CHAIN = read(
    "t = SCAN 't' (a INTEGER, b INTEGER)\nu = SELECT t WHERE {a > 1}\nv = PROJECT u TO (c = {a + b}, b = {b})\n"
    "w = AGGREGATE v BY (b) TO (c = SUM c)\nRESULTS w\n"
)
JOINED = read(
    "t = SCAN 't' (a INTEGER, b INTEGER)\nu = SCAN 'u' (a INTEGER, c INTEGER)\nv = PROJECT t TO (a = {a})\n"
    "w = JOIN INNER v, u ON (a = a) TO (a = LEFT a, c = RIGHT c)\nRESULTS w\n"
)
UNITED = read("t = SCAN 't' (a INTEGER)\nu = SELECT t WHERE {a > 1}\nv = UNION ALL t, u\nRESULTS v\n")
REGROUPED = read(
    "t = SCAN 't' (a INTEGER, b INTEGER)\nu = AGGREGATE t BY (a, b) TO (n = COUNT)\n"
    "v = AGGREGATE u BY (b) TO (n = MAX n)\nRESULTS v\n"
)
SAMPLES = (max_property_price(), CHAIN, JOINED, UNITED, REGROUPED, page_rank().subset(["loop", "ranks"]))


def jobs(one: Engine) -> list[Dag]:
    return [job for job in SAMPLES if one.inexpressible(job) is None]


def script(one: Engine, job: Dag, rules: Rules = ALL_RULES) -> str | None:
    """Where all relations are small; None if the engine does not take the job under these rules."""
    return one.generate(job, rules, job.names) if one.refused(job, rules, job.names) is None else None


@pytest.mark.parametrize("name", list(engines()))
@pytest.mark.parametrize("rule", Rules.names())
def test_a_rule_changes_scripts_or_the_engine_says_why_not(name: str, rule: str) -> None:
    one, rules = engine(name), ALL_RULES.off(rule)
    assert jobs(one)
    if rule in one.needed:
        with pytest.raises(Inexpressible, match=f"{name} takes nothing while the rule {rule} is off"):
            one.generate(jobs(one)[0], rules)
        return
    changed = any(script(one, job) != script(one, job, rules) for job in jobs(one))
    assert changed == (rule not in one.unheeded)


def test_engines_that_need_a_rule_are_left_out_without_it() -> None:
    offered = {"duckdb": True, "scipy": False}
    assert allowed(offered, (), ALL_RULES) == offered
    assert allowed(offered, (), ALL_RULES.off("idioms")) == {"duckdb": True}
    with pytest.raises(NoEngines, match="scipy takes nothing while the rule idioms is off"):
        allowed(offered, ["scipy"], ALL_RULES.off("idioms"))


def test_without_part_keys_mapreduce_takes_no_job_that_needs_them() -> None:
    rules = ALL_RULES.off("part_keys")
    assert engine("mapreduce").unmergeable(REGROUPED, ("u", "v")) is None
    assert "by different keys" in (engine("mapreduce").unmergeable(REGROUPED, ("u", "v"), rules) or "")
    with pytest.raises(Inexpressible, match="they shuffle by different keys"):
        engine("mapreduce").generate(REGROUPED, rules)
