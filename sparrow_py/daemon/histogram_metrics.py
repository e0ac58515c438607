"""Histograms as Prometheus has them, with exemplars for scrapers that take OpenMetrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client.core import Exemplar, HistogramMetricFamily

from sparrow_py.timing.histogram import Example, Histogram

EXEMPLAR_CHARS_MAX = 128
"""Of the names and values of an exemplar's labels together, as OpenMetrics has it."""
JOB_LABEL = "job_id"
"""`job` is what Prometheus calls its scrapes."""


def cumulative(bounds_s: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Buckets as they are scraped: each has its own values and those of all below."""
    together, buckets = 0, []
    for bound, count in zip([*map(str, bounds_s), "+Inf"], counts, strict=True):
        together += count
        buckets.append((bound, float(together)))
    return buckets


def by_app(name: str, help_text: str, histograms: Mapping[str, Histogram], *, exemplars: bool) -> HistogramMetricFamily:
    """A histogram with the label `app`. exemplars: whether each bucket names the job of its latest value."""
    family = HistogramMetricFamily(name, help_text, labels=["app"])
    for app, histogram in histograms.items():
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        found = cumulative(histogram.bounds_s, histogram.counts)
        for (bound, count), example in zip(found, histogram.examples, strict=True):
            exemplar = _exemplar(example) if exemplars and example is not None else None
            buckets.append((bound, count) if exemplar is None else (bound, count, exemplar))
        family.add_metric([app], buckets, histogram.sum_s)
    return family


def _exemplar(example: Example) -> Exemplar | None:
    """None if the job's name is longer than an exemplar may be."""
    if len(JOB_LABEL) + len(example.job) > EXEMPLAR_CHARS_MAX:
        return None
    return Exemplar({JOB_LABEL: example.job}, example.seconds, example.at_s)
