import pytest

from hornbook.tasks.datasets import KNOWN, OTHER_SPELLINGS, find_task
from hornbook.tasks.kinds import KINDS

METRICS = {
    "classification": {"accuracy", "f1", "macro_f1", "matthews"},
    "multi-label": {"micro_f1", "macro_f1", "exact_match"},
    "regression": {"pearson", "spearman"},
    "spans": {"f1", "exact"},
    "tagging": {"entity_f1", "tag_accuracy"},
    "choice": {"accuracy"},
    "entity-typing": {"loose_micro_f1", "loose_macro_f1", "exact_match"},
    "relation": {"macro_f1", "accuracy"},
    "similarity": {"spearman", "pearson", "mrr", "accuracy"},
}


@pytest.mark.parametrize("name", KNOWN)
def test_every_line_is_whole(name):
    entry = KNOWN[name]
    assert entry.name == name == name.lower()
    assert entry.metrics and set(entry.metrics) <= METRICS[entry.kind]
    assert "f1" not in entry.metrics or entry.kind == "spans" or entry.pos_label, "whose F1?"
    assert entry.layout.files and callable(entry.layout.read) and callable(entry.custom_layout.from_tables)
    assert entry.pos_label is None or entry.pos_label in entry.labels


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("text-classification", "classification"),
        ("sentiment", "classification"),
        ("token-classification", "tagging"),
        ("SST2", "sst-2"),
        ("stsb", "sts-b"),
        ("STS-B", "sts-b"),
        ("CoLA", "cola"),
        ("squad-v2", "squad2"),
        ("SQuAD 2.0", "squad2"),
        ("squad_v1.1", "squad"),
        ("KLUE_NLI", "klue-nli"),
        ("CoNLL-2003", "conll2003"),
        ("multilabel", "multi-label"),
        ("UD_POS", "ud-pos"),
    ],
)
def test_common_spellings(spelling, name):
    assert find_task(spelling).name == name


def test_other_spellings_lead_somewhere():
    assert set(OTHER_SPELLINGS) <= set(KNOWN)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match=r"'mrcp'.*did you mean mrpc\?$"):
        find_task("mrcp")
    with pytest.raises(ValueError, match=r"did you mean classification\?$"):
        find_task("clasification")
    with pytest.raises(ValueError, match=r"the known ones are cola, "):
        find_task("zzzzzzzzzzzz")


def test_published_settings():
    squad, squad2, swag, cola = (find_task(name) for name in ("squad", "squad2", "swag", "cola"))
    assert (squad.batch_size, squad.learning_rate, squad.epochs) == (32, 5e-5, 3)
    assert (squad2.batch_size, squad2.learning_rate, squad2.epochs) == (48, 5e-5, 2)
    assert (swag.batch_size, swag.learning_rate, swag.epochs) == (16, 2e-5, 3)
    assert (cola.batch_size, cola.learning_rate, cola.epochs) == (32, None, 3)


def test_submission_names():
    assert find_task("sts-b").submissions == {"test": "STS-B.tsv"}
    assert find_task("mnli").submissions == {"test": "MNLI-m.tsv", "test-mismatched": "MNLI-mm.tsv"}
    assert find_task("diagnostic").submissions == {"test": "AX.tsv"}
    assert not find_task("nsmc").submissions


@pytest.mark.parametrize("name", KNOWN)
def test_every_measure_is_one_of_its_kind(name):
    kind = KINDS[KNOWN[name].kind]
    assert {*KNOWN[name].metrics} <= {*kind.default_metrics, *kind.other_metrics}
