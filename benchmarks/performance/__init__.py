"""docs/performance.md, of what benchmarks printed: `python -m benchmarks.performance` writes the page.

`python -m benchmarks.all --results benchmarks/performance/results.jsonl` measures, and appends a line a benchmark.
`catalogue.py` has the benchmarks, `lines.py` the rows of the page, `page.md` its words; `document.py` joins them.
"""
