"""The claims of §4 and §5 have been tried with several seeds since simulations or claims have changed."""

from pathlib import Path

import pytest

from tests.paper import confident


def test_they_have() -> None:
    seen = confident.SEEN.read_text("ascii").strip()
    assert seen == confident.today(), "`make confidence` tries the claims with several seeds, and notes that they hold"


@pytest.mark.parametrize(("runs", "asks"), [("  lean/sparrow/1", True), ("  soak/", False)])
def test_another_decision_asks_for_it_again_where_the_claims_are_about_such_runs(
    runs: str, asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = confident.today()
    lines = confident.DIGESTS.read_text("ascii").splitlines()
    changed = tmp_path / "digests.txt"
    changed.write_text("\n".join(line for line in lines if runs not in line), "ascii")
    monkeypatch.setattr(confident, "DIGESTS", changed)
    assert (confident.today() != before) == asks


def test_another_claim_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = confident.today()
    claim = tmp_path / "test_4_analysis.py"
    claim.write_text(confident.CLAIMS[0].read_text("utf-8") + "\n# another claim\n", "utf-8")
    monkeypatch.setattr(confident, "CLAIMS", (claim, *confident.CLAIMS[1:]))
    assert confident.today() != before
