"""The claims of §4 and §5 have been tried with several seeds since simulations or claims have changed."""

from pathlib import Path

import pytest

from tests.paper import confident


def test_they_have() -> None:
    seen = confident.SEEN.read_text("ascii").strip()
    assert seen == confident.today(), "`make confidence` tries the claims with several seeds, and notes that they hold"


def test_another_decision_asks_for_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = confident.today()
    lines = confident.DIGESTS.read_text("ascii").splitlines()
    changed = tmp_path / "digests.txt"
    changed.write_text("\n".join(line for line in lines if "  lean/sparrow/1" not in line), "ascii")
    monkeypatch.setattr(confident, "DIGESTS", changed)
    assert confident.today() != before


def test_runs_that_the_claims_are_not_about_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = confident.today()
    lines = confident.DIGESTS.read_text("ascii").splitlines()
    changed = tmp_path / "digests.txt"
    changed.write_text("\n".join(line for line in lines if "  soak/" not in line), "ascii")
    monkeypatch.setattr(confident, "DIGESTS", changed)
    assert confident.today() == before


def test_another_claim_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = confident.today()
    claim = tmp_path / "test_4_analysis.py"
    claim.write_text(confident.CLAIMS[0].read_text("utf-8") + "\n# another claim\n", "utf-8")
    monkeypatch.setattr(confident, "CLAIMS", (claim, *confident.CLAIMS[1:]))
    assert confident.today() != before
