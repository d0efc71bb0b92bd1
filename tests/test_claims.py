"""General sentences of the book: each stands on its page as its claim quotes it, and a sentence that falls is named."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))

import claims  # noqa: E402
from test_named_sections import markdown  # noqa: E402

ALL = list(claims.claims())


@pytest.mark.parametrize(("page", "claim"), ALL, ids=[f"{page}-{claim.__name__}" for page, claim in ALL])
def test_a_claim_quotes_its_page(page, claim):
    assert len(claims.sentence(claim)) > 20
    assert claims.sentence(claim) in " ".join(markdown(page).split())


def test_a_sentence_that_falls_is_named_with_its_seeds(tmp_path, capsys):
    (tmp_path / "01_page.py").write_text(
        'def odd(seed):\n    """Every seed is odd."""\n    return seed % 2 == 1\n', "utf-8"
    )
    assert claims.run(claims.claims(tmp_path), [1, 2, 3, 4]) == ["01_page: Every seed is odd."]
    assert "FALLS on [2, 4] 2 of 4 seeds" in capsys.readouterr().out
    assert claims.run(claims.claims(tmp_path), [1, 3]) == []


def test_a_cell_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="01_what_is_rl has no code cells \\['nowhere'\\]"):
        claims.cells("01_what_is_rl", "nowhere")


@pytest.mark.slow
def test_the_sentences_of_one_page_hold_on_a_seed_of_their_own(capsys):
    assert claims.run(claims.claims(only="06_policy_gradients"), [16]) == [], capsys.readouterr().out
