"""Found by every interpreter that a round's daemons start, before anything else: sets its clock as the daemon's is."""

from benchmarks.laboratory.clocks import follow_environment

follow_environment()
