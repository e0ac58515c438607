"""Found by every interpreter of a traced cluster before anything else: notes what it says and hears."""

from benchmarks.hops.recorder import follow_environment

follow_environment()
