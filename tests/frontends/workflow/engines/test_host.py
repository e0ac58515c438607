"""Host processes keep an engine warm."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frontends.workflow.engines import engine
from frontends.workflow.engines.host import EngineHost
from frontends.workflow.errors import IterationsExceeded, JobFailed
from tests.support.workflow_dags import assert_same_bag
from tests.support.workflow_samples import page_rank

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with EngineHost(engine("serial"), threads=1) as started:
        yield started


def test_a_host_runs_one_script_after_the_other(host: EngineHost, tmp_path: Path) -> None:
    table = pa.table({"src": [1, 2], "dst": [2, 1]})
    ranks = pa.table({"id": [1, 2], "rank": [1.0, 1.0]})
    pq.write_table(table, tmp_path / "edges.parquet")
    pq.write_table(ranks, tmp_path / "ranks.parquet")
    inputs = {"edges": tmp_path / "edges.parquet", "page_rank": tmp_path / "ranks.parquet"}
    for number in range(2):
        out = tmp_path / f"out-{number}.parquet"
        ran = host.run(engine("serial").generate(page_rank(2)), inputs, {"ranks": out})
        assert ran.wall_s > 0 and ran.memory_bytes > 0
        assert_same_bag(pq.read_table(out), ranks)


def test_a_failing_script_says_why_and_the_host_goes_on(host: EngineHost) -> None:
    with pytest.raises(JobFailed, match="ValueError: no such thing") as caught:
        host.run("def run(inputs, outputs): raise ValueError('no such thing')", {}, {})
    assert "line 1, in run" in caught.value.details
    looping = "class IterationsExceeded(Exception): pass\ndef run(i, o): raise IterationsExceeded('loop', 3)"
    with pytest.raises(IterationsExceeded, match="3 iterations"):
        host.run(looping, {}, {})
    assert host.run("def run(inputs, outputs): print('lost')", {}, {}).cpu_s >= 0


@pytest.mark.rest
def test_a_host_that_ends_is_a_failed_job() -> None:
    with EngineHost(engine("serial"), threads=1) as host, pytest.raises(JobFailed, match="its process ended with 3"):
        host.run("import os\ndef run(inputs, outputs): os._exit(3)", {}, {})
