"""With what simulations and claims the claims of §4 and §5 were last seen to hold with several seeds.

Equal seeds give equal runs: what held once holds until simulations decide otherwise, of which the digests of the lean
simulator tell, or until somebody changes a claim. So `make test` tries each claim with one seed, and `make confidence`
with several, which takes a minute, whenever `make test` asks for it. If all hold it calls

    python -m tests.paper.confident

which writes down of what that was.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

TESTS = Path(__file__).parents[1]
SEEN = TESTS / "paper/testdata/confident.txt"
DIGESTS = TESTS / "simulator/testdata/digests.txt"
CLAIMS = (TESTS / "paper/test_4_analysis.py", TESTS / "paper/test_5_simulation.py", TESTS / "support/paired.py")


def today() -> str:
    """Of what it would be now: a digest of the lean simulator's digests, and of the claims."""
    runs = [line for line in DIGESTS.read_text("ascii").splitlines() if "  lean/" in line and "/audit" not in line]
    return sha256("\n".join([*runs, *[path.read_text("utf-8") for path in CLAIMS]]).encode()).hexdigest()


if __name__ == "__main__":
    SEEN.write_text(f"{today()}\n", "ascii")
