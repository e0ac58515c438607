"""What programs over arrays cost to schedule, beside the papers' figures."""

import os

# As workers have it, and before anything here imports numpy: CPU time of one thread is all of it then.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
