"""The laboratory for faults: what breaks a cluster of real processes on purpose, and judges what comes of it.

A `Cluster` (cluster.py) is daemons and users' programs as processes, by name; they reach each other over a network that
may fail (network.py: loopback, or a network namespace for each machine; wires.py: proxies, where there is no
privilege). faults.py has the one list of faults: what each needs, how it is done and how it is undone. Users' programs
(program.py) submit jobs (jobs.py, kinds.py) and write down what they are told (told.py); tasks (work.py) write down
that they begin and end; both together are the evidence (evidence.py), which one oracle (oracle.py) holds against the
guarantees. `Experiment` (experiment.py) plays a plan from the first process to the last.

Four commands use it: `benchmarks.chaos` plays many short plans, `benchmarks.soak` one long one over wires, the fault
matrix (`tests/faults`) one fault at a time on a cluster that goes on, and `benchmarks.faults_peers` compares what users
of other systems see. The simulator's faults happen in virtual time; the rules by which it and the oracle judge are the
same (`simulator/soak/guarantees.py`).
"""
