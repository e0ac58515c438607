"""What a program prints under several hash seeds, each in an interpreter of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HASH_SEEDS = ("0", "4711", "random")


def outputs(program: str) -> set[bytes]:
    """The different outputs of the program, one if the hash seed does not matter."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in HASH_SEEDS
    }
