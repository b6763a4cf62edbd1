"""BLEU from counts of examples is sacrebleu's own over the whole."""

import sys

import pytest

from hornbook.metrics.generation import bleu, bleu_counts, check_sacrebleu

TEXTS = ["le chat dort sur le tapis .", "il pleut aujourd'hui à Paris", "oui", "une maison rouge et une maison bleue"]
GOLD = ["le chat dort sur un tapis .", "aujourd'hui il pleut à Paris", "non", "une maison rouge et bleue"]


def test_counts_add_up_to_the_score_of_the_whole():
    sacrebleu = pytest.importorskip("sacrebleu")
    rows = bleu_counts(TEXTS, [[gold] for gold in GOLD])
    assert bleu(rows.sum(0)) == pytest.approx(sacrebleu.corpus_bleu(TEXTS, [GOLD]).score)
    few = [0, 3, 3]
    expected = sacrebleu.corpus_bleu([TEXTS[i] for i in few], [[GOLD[i] for i in few]]).score
    assert bleu(rows[few].sum(0)) == pytest.approx(expected)


def test_without_sacrebleu_the_error_names_the_fix(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ValueError, match=r"pip install 'hornbook\[prompt\]'"):
        check_sacrebleu()
