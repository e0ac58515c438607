"""Where results are kept, and the document that is made of them."""

from __future__ import annotations

from benchmarks.paper.runs import ROOT

RESULTS = ROOT / "benchmarks/workflow/results.jsonl"
DOCUMENT = ROOT / "docs/workflow-figures.md"
