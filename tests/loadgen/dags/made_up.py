"""DAG jobs that Hypothesis makes up."""

from hypothesis import strategies as st

from loadgen.dags.dag_job import DagJob, DagStage
from loadgen.dags.resources import RESOURCES

LABELS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
AMOUNTS = st.floats(0.001, 1e12, allow_nan=False)


@st.composite
def dag_jobs(draw: st.DrawFn) -> DagJob:
    """A job of up to six stages."""
    stages = []
    for number in range(draw(st.integers(1, 6))):
        parents = draw(st.sets(st.integers(0, number - 1))) if number else set()
        demand = draw(st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, min_size=1))
        stages.append(
            DagStage(
                draw(st.integers(1, 1000)), draw(st.floats(0.001, 1e6)), demand, tuple(sorted(parents)),
                draw(st.sampled_from(["", "scan", "join"])),
            )
        )  # fmt: skip
    name, user = draw(NAMES), draw(NAMES)
    return DagJob(name, draw(st.floats(0, 1e6)), tuple(stages), user, draw(LABELS))
