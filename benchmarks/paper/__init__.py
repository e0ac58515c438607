"""The paper beside this implementation, sentence by sentence: `python -m benchmarks.paper` writes docs/paper.md.

`claims` has a row for each figure, table and quantified sentence of the paper; a row says which number is ours
(`quantities`), of which runs it is made (`runs`), and by which rule it is judged (`rules`). `results` keeps what was
measured, a line for each run, so that the document can be made again without running anything.
"""
