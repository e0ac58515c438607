"""Texts that are nearly workflows, to show that parsers refuse whatever they do not take.

    python -m tests.support.workflow_texts 100000

tries as many on each language that is parsed, and prints how many were workflows.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import Dag
from frontends.workflow.languages import beer, gas

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflow"
PARSERS: dict[str, Callable[[str], Dag]] = {".beer": beer.parse, ".gas": gas.parse}
CHANGES_MAX = 3
"""Changes of a text."""
STRANGE = (
    "'",
    '"',
    "`",
    "//",
    "\n",
    "\0",
    "é",
    "\u202e",
    "1e999",
    "9" * 30,
    "-",
    ".",
    "((",
    "))",
    "[[",
    "}",
    "NULL",
    "_0",
)

_PIECE = re.compile(r"//[^\n]*|'[^']*'|[A-Za-z_0-9.]+|\s+|.", re.DOTALL)

_KINDS = (r"[a-z_]+[0-9a-z_]*", r"[A-Z_]+", r"[0-9.]+", r"(?s:'.*')", r"(?s:[^A-Za-z0-9'].*)", r"(?s:.*)")


class Texts:
    """Texts of a language with some pieces left out, doubled, swapped, or replaced by those of others."""

    def __init__(self, suffix: str, seed: int) -> None:
        texts = [path.read_text() for path in sorted(EXAMPLES.glob(f"*{suffix}"))]
        self._texts = [[piece for piece in _PIECE.findall(text) if not piece.startswith("//")] for text in texts]
        self._pieces = sorted({piece for text in self._texts for piece in text if not piece.isspace()})
        self._chance = random.Random(seed)

    def next(self) -> str:
        chance = self._chance
        pieces = list(chance.choice(self._texts))
        for _ in range(chance.randint(1, CHANGES_MAX)):
            places = [place for place, piece in enumerate(pieces) if not piece.isspace()]
            if not places:
                break
            place, other = chance.choice(places), chance.choice(places)
            words = [place for place in places if pieces[place][0].isalnum() and not pieces[place].isupper()]
            match chance.randrange(24):
                case 0:
                    del pieces[min(place, other) : min(place, other) + chance.randint(1, 3)]
                case 1:
                    pieces.insert(place, pieces[other])
                case 2:
                    pieces[place], pieces[other] = pieces[other], pieces[place]
                case 3:
                    pieces[place] = chance.choice(self._pieces)
                case 4:
                    pieces.insert(place, chance.choice(STRANGE))
                case 5:
                    pieces = pieces[: place + 1]
                case 6:
                    pieces[place] = self._alike(pieces[place])
                case _ if words:
                    place = chance.choice(words)
                    pieces[place] = self._alike(pieces[place])
        return "".join(pieces)

    def _alike(self, piece: str) -> str:
        """Another piece of the same kind: a name in small letters, a word in capitals, a number, a text, or a mark."""
        kind = next(one for one in _KINDS if re.fullmatch(one, piece))
        return self._chance.choice([one for one in self._pieces if re.fullmatch(kind, one)])


def tried(suffix: str, count: int, seed: int = 1) -> int:
    """How many of `count` texts are workflows; every other must be refused by `InvalidWorkflow`, with its place."""
    texts, parse = Texts(suffix, seed), PARSERS[suffix]
    workflows = 0
    for _ in range(count):
        text = texts.next()
        try:
            parse(text)
            workflows += 1
        except InvalidWorkflow as error:
            str(error)
        except BaseException:
            print(f"not refused in words:\n{text}", file=sys.stderr)
            raise
    return workflows


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    for suffix in PARSERS:
        print(f"{suffix}: {tried(suffix, count):,} of {count:,} texts were workflows")


if __name__ == "__main__":
    main()
