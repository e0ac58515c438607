"""The same work with Sparrow and with others who run calls, jobs or commands: `python -m benchmarks.peers`.

A *peer* is a class in `systems/`: to add one, add a file there. A *library* is used by a program; a *tool* is typed in
a shell. Each library has a program of its own, the *user* (`user.py`), which starts it, runs cases and says what came
out; so its CPU time and memory are those of one tree of processes. `cases.py` has what is measured, `turns.py` who
runs when, `outcome.py` and `document.py` what is made of it.
"""
