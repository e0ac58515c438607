"""A cluster of real processes that all tests share which neither kill nor drain anything."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import Client, LocalCluster
from sparrow_py.daemon.process import GC_THRESHOLDS
from sparrow_py.embedded import daemon_process
from tests.support import forked_starts
from tests.support.distribution import ByFile
from tests.support.imported_in_parts import import_a_part
from tests.support.one_compiler import compile_one_at_a_time
from tests.support.others import Others
from tests.support.properties import draw_the_same_whatever_is_loaded, is_of_the_gate, register_profiles
from tests.support.suites import (
    FEWER_EXAMPLES,
    MAY_HAVE,
    SUITES_OF_ALL,
    TESTS,
    Suite,
    is_alone,
    is_property,
    suites_of,
    try_fewer_examples,
    turn,
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background has them ignore SIGINT; what they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for name in [name for name in os.environ if name.startswith("SPARROW_")]:
    del os.environ[name]  # What the tester's own environment says of clusters is none of the tests' business.

os.environ["SSL_CERT_FILE"] = os.devnull  # Nobody here asks the internet, and every process would read its authorities.

gc.disable()  # Until all tests are collected: what they are made of stays.

register_profiles()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What to run; and options of tests/faults and tests/fuzz, which have to be known here."""
    parser.addoption(
        "--suite",
        choices=list(Suite),
        default=Suite.ALL,
        help="the tests of make test-quick, of make test, of make test-rest, of make confidence, or all",
    )
    parser.addoption(
        "--faults",
        choices=("pairwise", "all"),
        default="pairwise",
        help="rows of the fault matrix: those that have every pair, or all",
    )
    parser.addoption("--faults-report", metavar="FILE", help="add a line of JSON for each row of the fault matrix")
    parser.addoption("--fuzz-seconds", type=float, default=0.0, help="how long to fuzz in all; 0: one short round each")
    parser.addoption("--fuzz-seed", type=int, default=None, help="the seed of the first round, as a failure names it")


def suite_of(config: pytest.Config) -> Suite:
    """What this run has chosen."""
    return Suite(config.getoption("--suite"))


def pytest_configure(config: pytest.Config) -> None:
    """Markers, and what watches over quick tests."""
    config.addinivalue_line("markers", "rest: left out by `make test`, run by `make test-rest`")
    config.addinivalue_line("markers", "confident: a claim tried with several seeds, by `make confidence` alone")
    config.addinivalue_line("markers", "processes: starts processes, so it is not for `make test-quick`")
    config.addinivalue_line("markers", "real_starts: its daemons are executed, not forked")
    config.addinivalue_line("markers", "real_executors: so are the executors of its daemons")
    sys.addaudithook(no_process_of_a_quick_test)


others_that_run: Others | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    """By now Hypothesis has its options; and a process of several says that it is there."""
    draw_the_same_whatever_is_loaded()
    global others_that_run  # noqa: PLW0603 (one for each process, as hooks have nowhere else to keep it)
    if hasattr(session.config, "workerinput"):
        others_that_run = Others(Path(session.config.option.basetemp).parent / "others")


def end_without_clearing(pid: int) -> None:
    """At the exit of a process of several, whose code nobody looks at: when all else that is to be done has been done,
    modules and thousands of tests are not cleared one by one, for which the last process would wait. A fork of this
    process ends as any. To be registered last, so that it is called first: it calls all others, each of them once."""
    atexit.unregister(end_without_clearing)
    if os.getpid() == pid:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def pytest_sessionfinish() -> None:
    """Its tests have ended, and what they shared."""
    if others_that_run is not None:
        others_that_run.leave()
        atexit.register(end_without_clearing, os.getpid())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """pytest-xdist asks who distributes the tests."""
    return ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what `make test-quick` and `make test-rest` will not run."""
    may_have = MAY_HAVE.get(suite_of(config))
    return True if may_have and not may_have(collection_path) else None


def collects_all(config: pytest.Config) -> bool:
    """Whether nobody has named files or directories of tests."""
    return [Path(argument).resolve() for argument in config.args] == [TESTS]


def selects_some(config: pytest.Config) -> bool:
    """Whether tests are chosen by name or mark, or as the last run ended."""
    return any(config.getoption(option, False) for option in ("keyword", "markexpr", "deselect", "lf"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of several processes each begins with files of its own: what it imports, no other has to compile."""
    config = session.config
    if hasattr(config, "workerinput") and collects_all(config):
        may_have = MAY_HAVE.get(suite_of(config), bool)
        import_a_part(config.workerinput, filter(may_have, TESTS.rglob("test_*.py")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of other suites; put first what takes long, last what runs alone."""
    suite = suite_of(config)
    of_items = [suites_of(item) for item in items]
    if suite is Suite.TEST and collects_all(config) and not selects_some(config):
        config.stash[SUITES_OF_ALL] = list(zip(of_items, [item.nodeid for item in items], strict=True))
    chosen, others = [], []
    for item, suites in zip(items, of_items, strict=True):
        (chosen if suite in suites else others).append(item)
    if suite in FEWER_EXAMPLES and is_of_the_gate():
        for item in filter(is_property, chosen):
            try_fewer_examples(item, FEWER_EXAMPLES[suite])
    items[:] = sorted(chosen, key=lambda item: turn(item.nodeid))
    if others:
        config.hook.pytest_deselected(items=others)


KERNELS = Path(__file__).parents[1] / "scheduler" / "flow"


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules of five thousand tests: several tests call it, some after each step.
    And have what they need compiled by one process alone, if they need such a thing."""
    if "scheduler.flow.kernels" in sys.modules:
        compile_one_at_a_time(KERNELS / "__pycache__")
    gc.freeze()  # With the little garbage that collection makes: looking for it takes half a second.
    gc.set_threshold(*GC_THRESHOLDS)  # As in the daemons: almost all that tests make is freed by reference counts.
    gc.enable()
    atexit.register(gc.unfreeze)  # Some libraries tell at exit what was not freed.


quick_test_that_runs: str | None = None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember which quick test runs, and whether the test's daemons are forked; and put back the handlers of signals.
    To wait for others is no part of the time that a test may take, so this comes first."""
    if others_that_run is not None and is_alone(item.nodeid):
        others_that_run.wait_until_over()
    global quick_test_that_runs  # noqa: PLW0603 (an audit hook has nowhere else to look)
    quick_test_that_runs = item.nodeid if Suite.QUICK in suites_of(item) else None
    forked_starts.chosen = item.get_closest_marker("real_starts") is None
    forked_starts.executors_chosen = item.get_closest_marker("real_executors") is None
    handlers = {number: signal.getsignal(number) for number in SIGNALS_OF_COMMANDS}
    try:
        return (yield)
    finally:
        quick_test_that_runs = None
        for number, handler in handlers.items():
            signal.signal(number, handler)


SIGNALS_OF_COMMANDS = (signal.SIGINT, signal.SIGTERM)
"""Commands that run in the process of the tests set handlers for these. A handler left behind by one test makes
another hang: a forked child inherits it, and an exception that a handler raises while the child starts is lost."""


def no_process_of_a_quick_test(event: str, _: object) -> None:
    """An audit hook: it fails a quick test that starts a process."""
    if quick_test_that_runs is not None and event in PROCESS_EVENTS:
        raise AssertionError(f"{quick_test_that_runs} starts a process: mark it with @pytest.mark.processes")


PROCESS_EVENTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})


@pytest.fixture(scope="session", autouse=True)
def forked_daemons() -> Iterator[None]:
    """Embedded clusters have their daemons forked, as `Daemon` has, unless a test is marked `real_starts`; and programs
    over arrays their controllers."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in (daemon_process, sys.modules.get("frontends.dataflow.driver")):
            if module is not None:
                monkeypatch.setattr(module, "Popen", forked_starts.Popen)
        yield
    forked_starts.end_server()


SLOTS = 4
"""Of the shared cluster, over all its node monitors."""


@pytest.fixture(scope="module")
def garbage_before() -> None:
    """What other tests have made, and what they left, is none of the garbage collector's business any more: for tests
    that call it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One scheduler, two node monitors of two slots. Leave it as it is."""
    with LocalCluster(node_monitors=2, slots=SLOTS // 2, log_dir=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster."""
    with Client(cluster) as client:
        yield client


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that is not there: `tasks.hold` waits for it. It is there when the test ends."""
    path = tmp_path / "gate"
    yield path
    path.touch()
