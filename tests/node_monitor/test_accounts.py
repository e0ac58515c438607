"""Users who have accounts of their own (`run_as`): what the option says, and the core, which keeps executors apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from node_monitor.executors.apps import App, by_account, offered_apps
from node_monitor.executors.executor_state import AppPlan
from node_monitor.host.accounts import ACCOUNTS_MAX, ALL_AS_OURSELVES, UserAccounts
from node_monitor.http.metrics import collect
from node_monitor.http.views import status
from node_monitor.options import NodeMonitorOptions
from node_monitor.supervision import RESTART_DELAY_MAX_S
from sparrow_py.access.principals import ANYBODY
from sparrow_py.errors import InvalidOption
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.node_monitor.test_one_user_executors import Rig
from tests.support.guarded import CLUSTER
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

TWO = UserAccounts({"anna": "a", "bert": "b"}, None)


# ---- what the option says ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "by_user", "others"),
    [
        ((), {}, ""),
        (("nobody",), {}, "nobody"),
        (("*=nobody",), {}, "nobody"),
        (("65534",), {}, "65534"),
        (("ada=a", "bob=b"), {"ada": "a", "bob": "b"}, None),
        (("ada=a", "*=nobody", "bob=a"), {"ada": "a", "bob": "a"}, "nobody"),
        (("a=b c=d",), {"a=b c": "d"}, None),  # A user's name may have both, an account's neither.
    ],
)
def test_who_has_which_account(texts: tuple[str, ...], by_user: dict[str, str], others: str | None) -> None:
    accounts = UserAccounts.parsed(texts)
    assert (accounts.by_user, accounts.others) == (by_user, others)
    assert accounts.of("somebody") == others


@pytest.mark.parametrize(
    ("texts", "value", "allowed"),
    [
        (("nobody", "ada=a"), "'nobody'", "USER=ACCOUNT where there are several"),
        (("nobody", "daemon"), "'nobody'", "USER=ACCOUNT where there are several"),
        (("ada=a", "ada=b"), "'ada=b'", "one account for each user; 'ada' has 'a'"),
        (("*=a", "*=a"), "'*=a'", "one account for each user"),
        (("=a",), "'=a'", "ACCOUNT, or USER=ACCOUNT"),
        (("ada=",), "'ada='", "ACCOUNT, or USER=ACCOUNT"),
        (tuple(f"u{n}=a{n}" for n in range(ACCOUNTS_MAX + 1)), "'65 accounts'", f"at most {ACCOUNTS_MAX}"),
    ],
    ids=["one and a user's", "two", "a user twice", "others twice", "no user", "no account", "too many"],
)
def test_an_option_that_cannot_be_is_refused_in_one_line(texts: tuple[str, ...], value: str, allowed: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        UserAccounts.parsed(texts)
    said = str(caught.value)
    assert "run_as" in said and value in said and allowed in said and "\n" not in said


def test_users_have_accounts_only_where_they_are_asked_who_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever can open a socket says that he is another, and runs as that one's account."""
    assert NodeMonitorOptions(run_as=("", "*=nobody")).accounts == UserAccounts({}, "nobody")
    with pytest.raises(InvalidOption, match=r"run_as: 'anna=a, bert=b' .* unless tokens or TLS say who a user is"):
        NodeMonitorOptions(run_as=("anna=a", "bert=b"))
    monkeypatch.setenv("SPARROW_TOKEN", CLUSTER)
    assert NodeMonitorOptions(run_as=("anna=a", "bert=b")).accounts == TWO


def test_tasks_of_several_users_may_share_an_account() -> None:
    assert [UserAccounts.parsed(texts).shared for texts in ((), ("a",), ("u=a",), ("u=a", "v=b"), ("u=a", "v=a"))] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert UserAccounts.parsed(("u=a", "*=b")).shared


def test_each_app_runs_once_for_each_account_but_what_is_not_started_here() -> None:
    apps = {
        "many": App(AppPlan("many")),
        "guest": App(AppPlan("guest", supervised=False)),
    }
    assert list(by_account(apps, ALL_AS_OURSELVES)) == ["many", "guest"]
    assert list(by_account(apps, UserAccounts({}, "nobody"))) == ["many@nobody", "guest"]
    found = by_account(apps, UserAccounts({"anna": "a"}, "b"))
    assert list(found) == ["many@b", "many@a", "guest"]
    assert [app.plan.account for app in found.values()] == ["b", "a", ""]
    assert list(by_account(apps, TWO)) == ["many@a", "many@b", "guest"]


@pytest.mark.parametrize("accounts", [("anna=a",), ("*=nobody", "anna=a")])
def test_sql_is_not_offered_where_users_have_accounts(
    accounts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One executor works for all users, and is open to the tasks of the account that it runs as."""
    monkeypatch.setenv("SPARROW_TOKEN", CLUSTER)
    assert "sql" not in offered_apps(NodeMonitorOptions(run_as=accounts))
    wanting: tuple[tuple[str, dict[str, Any]], ...] = (
        ("warm: 'sql'", {"warm": ("sql",)}),
        ("sql_data: '/data ada=/ada'", {"sql_data": ("/data", "ada=/ada")}),
    )
    for field, options in wanting:
        with pytest.raises(InvalidOption, match=rf"{field} .*a node monitor of its own with one account$"):
            offered_apps(NodeMonitorOptions(run_as=accounts, **options))


def test_sql_is_offered_where_all_users_have_one_account() -> None:
    pytest.importorskip("duckdb")
    assert "sql" in offered_apps(NodeMonitorOptions(run_as=("*=nobody",)))


# ---- the core ------------------------------------------------------------------------------------


def rig_of(slots: int, accounts: UserAccounts = TWO, **options: Any) -> Rig:
    rig = Rig(slots, accounts=accounts, **options)
    rig.start_what_is_to_start()
    return rig


def test_executors_of_an_account_run_its_users_tasks_alone() -> None:
    rig = rig_of(1)
    assert [rig.account(rig.run(user)) for user in ("anna", "bert", "anna")] == ["a", "b", "a"]


def test_who_has_no_account_is_refused_for_good_and_others_are_served() -> None:
    rig = rig_of(1)
    rig.reserve("carl")
    ((_, refused),) = rig.outbox.take(m.ReservationsRefused)
    assert (refused.reason, refused.lasting) == ("user 'carl' has no account at this node (run_as)", True)
    assert not rig.outbox.take(m.GetTasks)
    assert rig.account(rig.run("anna")) == "a"


def test_a_task_that_was_pushed_for_who_has_no_account_has_failed() -> None:
    rig = rig_of(1)
    rig.core.receive("s", m.Launch(0, "j", 0, 3, 1, b"", ticket=7), 0.0)
    rig.core.receive("s", reserve(7, 1, app="pool", user="carl", job="j"), 0.0)
    rig.settle()
    ((_, report),) = rig.outbox.take(m.Report)
    assert (report.task, report.status) == (3, TaskStatus.FAILED) and "has no account" in report.error
    assert not rig.outbox.take(m.HandBack) and rig.core.idle


def test_no_user_names_anothers_executors() -> None:
    rig = rig_of(1)
    rig.core.receive("s", reserve(1, 1, app="pool@b", user="anna"), 0.0)
    ((_, refused),) = rig.outbox.take(m.ReservationsRefused)
    assert refused.reason == "no app 'pool@b' here" and not refused.lasting


def test_what_has_no_account_serves_everybody() -> None:
    plans = [AppPlan("noop", one_process=True, supervised=False), AppPlan("pool", account="a")]
    node = NodeCore(1, plans, users=UserAccounts({"anna": "a"}, None))
    node.receive(reserve(1, 1, app="noop", user="carl"))
    assert len(node.take(m.GetTasks)) == 1 and node.core.node.apps == {"noop": "", "pool": ""}


@pytest.mark.parametrize("forks", [True, False])
def test_accounts_share_what_is_started_ahead_and_have_more_when_they_need_it(forks: bool) -> None:
    rig = rig_of(4, forks=forks)
    assert [app.fresh for app in rig.core.apps.values()] == [2, 2]
    rig.reserve("bert", 4)
    assert [rig.account(at) for at, _, _ in rig.answer()] == ["b", "b"]
    for _ in range(2):
        rig.start_what_is_to_start()
        rig.answer()
    assert rig.core.free_slots == 0, "no slot waits for the other account's executors"
    assert rig.core.apps["pool@a"].fresh == 2


def test_each_account_has_one_ahead_where_there_are_more_of_them_than_slots() -> None:
    rig = rig_of(1, UserAccounts({f"user{number}": f"a{number}" for number in range(5)}, None))
    assert [app.fresh for app in rig.core.apps.values()] == [1] * 5


def test_idle_executors_count_over_all_accounts() -> None:
    """Those that were not used for longest go, whatever their account."""
    users = UserAccounts({f"user{number}": f"a{number}" for number in range(3)}, None)
    rig = rig_of(1, users, idle_workers_max=2)
    executors = []
    for number in range(3):
        executors.append(rig.run(f"user{number}"))
        rig.start_what_is_to_start()
    assert rig.outbox.killed == executors[:1]
    rig.end_what_is_to_end()
    assert rig.core.offered["pool"].idle == 2 and rig.core.offered["pool"].surplus(1) == 2


def test_executors_that_were_started_for_who_has_gone_go_first() -> None:
    rig = rig_of(4, idle_workers_max=1)
    kept = rig.run("anna")
    rig.reserve("bert", 4)
    rig.answer()
    started, rig.outbox.started[:] = list(rig.outbox.started), []
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s")
    rig.outbox.started += started
    rig.start_what_is_to_start()
    surplus = rig.core.offered["pool"].surplus(4)
    assert surplus <= 1 and kept not in rig.outbox.killed
    rig.end_what_is_to_end()
    assert [app.fresh <= 2 for app in rig.core.apps.values()] == [True, True]
    assert not rig.outbox.started, "what was too many is not started again"


def let_starts_fail(rig: Rig, name: str) -> None:
    """Until the executors of this plan are withdrawn."""
    rig.outbox.started.clear()
    while not rig.core.apps[name].offer.withdrawn:
        rig.core.executor_failed(name, "Resource temporarily unavailable", rig.now_s)
        rig.now_s += RESTART_DELAY_MAX_S
        rig.core.tick(rig.now_s)
        assert rig.outbox.started == [(name, 1)], "it is tried again"
        rig.outbox.started.clear()
    rig.settle()


def test_an_app_whose_executors_start_as_no_account_is_withdrawn() -> None:
    rig = Rig(1, accounts=TWO)
    for name in ("pool@a", "pool@b"):
        let_starts_fail(rig, name)
    assert not rig.core.info.apps and rig.core.info.withdrawn == {"pool": "Resource temporarily unavailable"}


def test_an_account_whose_executors_do_not_start_shuts_no_other_out() -> None:
    rig = Rig(1, accounts=TWO)
    rig.core.executor_up("b1", "pool@b", 1, 0.0)
    let_starts_fail(rig, "pool@a")
    assert rig.core.info.apps == {"pool": ""} and not rig.core.info.withdrawn, "it runs here, for some"
    rig.reserve("anna")
    ((_, refused),) = rig.outbox.take(m.ReservationsRefused)
    reason = "executors of 'pool' do not start here as account 'a': Resource temporarily unavailable"
    assert (refused.reason, refused.lasting) == (reason, True), "schedulers, who know nothing of it, would go on"
    assert rig.account(rig.run("bert")) == "b"
    told = status(
        SimpleNamespace(id="n", slots=1, core=rig.core, scheduler_addresses=[]),  # type: ignore[arg-type]
        ANYBODY,
    ).apps
    assert (told["pool@a"].state, told["pool@a"].reason) == ("withdrawn", "Resource temporarily unavailable")
    assert told["pool@b"].state == "offered"
    metrics = {metric.name: metric for metric in collect([rig.core], MagicMock(), NodeMonitorOptions())}
    assert metrics["sparrow_node_monitor_withdrawn_apps"].samples[0].value == 1


def test_what_waited_for_executors_that_do_not_start_as_its_account_is_refused_for_good() -> None:
    rig = Rig(1, accounts=TWO)
    rig.core.executor_up("b1", "pool@b", 1, 0.0)
    rig.reserve("anna")
    let_starts_fail(rig, "pool@a")
    ((_, refused),) = rig.outbox.take(m.ReservationsRefused)
    assert refused.lasting and refused.reason.endswith("as account 'a': Resource temporarily unavailable")


def test_schedulers_hear_that_an_account_whose_executors_did_not_start_is_served_again() -> None:
    """To them the node is as it was, but what it refused for good it takes now."""
    rig = Rig(1, accounts=TWO)
    rig.core.executor_up("b1", "pool@b", 1, 0.0)
    let_starts_fail(rig, "pool@a")
    assert not rig.outbox.take(m.NodeChanged)
    rig.core.executor_up("a1", "pool@a", 1, rig.now_s)
    assert rig.outbox.take(m.NodeChanged) == [("s", m.NodeChanged(rig.core.info))]


def test_large_data_are_opened_to_the_account_whose_executor_needs_them() -> None:
    rig = rig_of(1)
    opened: list[tuple[str, str]] = []
    file_for = rig.blobs.file_for

    def remember(hash_: str, account: str) -> x.File | None:
        opened.append((hash_, account))
        return file_for(hash_, account)

    rig.blobs.file_for = remember  # type: ignore[method-assign]
    ref = BlobRef("ab" * 32, 3, ("there:1",))
    rig.blobs.add(ref)
    rig.reserve("bert")
    ((_, ask),) = rig.outbox.take(m.GetTasks)
    rig.core.receive("s", m.Launch(ask.ask, "bert", 0, 0, 1, ref), 0.0)
    rig.settle()
    assert [run.payload.hash for _, run in rig.outbox.take(x.Run)] == [ref.hash]
    assert opened == [(ref.hash, "b")]
