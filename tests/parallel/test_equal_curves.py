"""One, two and four ranks learn the same, whatever the objective."""

import json

import pytest
from finetuned import encoder, finetuned, labelled_texts
from parallel.curves import PRETRAINED, all_curves
from parallel.rank_processes import ended, start_ranks
from tiny_runs import run

NAMES = [*PRETRAINED, "distillation", "task", "distilled task", "similarity"]
ON_FOUR = ["mlm and nsp", "task", "similarity"]


@pytest.fixture(scope="module")
def curves(tmp_path_factory, tiny_corpus, tiny_tokenizer) -> dict[int, dict[str, list[float]]]:
    folder = tmp_path_factory.mktemp("curves")
    model = encoder(folder / "encoder", tiny_tokenizer)
    texts = labelled_texts(37)
    paired = [{"anchor": row["text"], "positive": " ".join(reversed(row["text"].split()))} for row in texts]
    rows = {"classified": texts, "paired": paired}
    teachers = {"task": str(finetuned(folder / "teacher", model, "classification", texts))}
    teachers["text"] = str(folder / "large")
    run(folder / "large", tiny_corpus, steps=2)
    started = []
    for size in (1, 2, 4):  # side by side: ranks wait for each other half of the time
        (folder / str(size)).mkdir()
        names = ON_FOUR if size == 4 else NAMES
        arguments = (str(folder / str(size)), names, str(tiny_corpus), str(model), rows, teachers)
        started += start_ranks(size, all_curves, *arguments)
    assert set(ended(started)) == {0}
    return {size: json.loads((folder / str(size) / "curves.json").read_text()) for size in (1, 2, 4)}


def test_the_number_of_ranks_changes_nothing_but_rounding(curves):
    """One test for all objectives, as test processes do not share the fixture. In small micro-batches there are several
    held-out batches, whose validation the ranks share; otherwise there are fewer than ranks."""
    for name in NAMES:
        alone = curves[1][name]
        assert len(alone) >= (24 if name in ON_FOUR else 12) and abs(alone[-1] - alone[0]) > 1e-3, name  # it learns
        for size in (2, 4) if name in ON_FOUR else (2,):
            assert curves[size][name] == pytest.approx(alone, rel=1e-9), f"{name}, {size} ranks"
    for name in PRETRAINED:
        alone, together = (curves[size][f"validation of {name}"] for size in (1, 2))
        assert alone and together == pytest.approx(alone, rel=1e-9), name
