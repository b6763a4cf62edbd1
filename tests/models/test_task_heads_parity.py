"""The head of every kind of task: outputs, loss and gradients equal those of `transformers`, folders open in both
libraries, and outputs do not depend on the rest of the batch."""

import numpy as np
import pytest
import torch
import transformers
from small_families import FAMILIES, Family, check_gradients, moved, sequences, to_padded

from hornbook.batch import pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.encoder import Encoder
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.spec import load_task

LABELS = ("no", "maybe", "yes")
KINDS = {
    "single": HeadConfig("sequence", 3, LABELS),
    "multi": HeadConfig("sequence", 3, LABELS, "multi_label_classification"),
    "number": HeadConfig("sequence", 1, ("score",), "regression"),
    "choice": HeadConfig("choice"),
    "tokens": HeadConfig("tokens", 3, ("O", "B-X", "I-X")),
    "spans": HeadConfig("spans", 2),
}
OWN = {
    "mlp": HeadConfig("sequence", 3, LABELS, layers="mlp"),
    "cnn": HeadConfig("sequence", 3, LABELS, layers="cnn"),
    "bilstm": HeadConfig("sequence", 3, LABELS, layers="bilstm"),
    "attention": HeadConfig("sequence", 3, LABELS, layers="attention"),
    "separate": HeadConfig("sequence", 3, LABELS, pair_encoding="separate"),
    "separate number": HeadConfig("sequence", 1, ("score",), "regression", pair_encoding="separate"),
    "answerable": HeadConfig("spans", 2, has_answer_classifier=True),
}
TOGETHER = {"choice": 3, "separate": 2, "separate number": 2}
LENGTHS = [13, 3, 20, 7, 7, 16]


@pytest.fixture(params=FAMILIES)
def family(request) -> Family:
    return FAMILIES[request.param]


def their_model(family: Family, name: str) -> transformers.PreTrainedModel:
    head_config = KINDS[name]
    torch.manual_seed(0)
    labels = dict(enumerate(head_config.labels)) or None
    about = {} if labels is None else {"id2label": labels, "label2id": {label: i for i, label in labels.items()}}
    if head_config.output == "sequence":
        about["problem_type"] = head_config.problem_type
    return moved(family.their_class(head_config)(family.their_config(**about)))


def our_model(family: Family, head_config: HeadConfig) -> Encoder:
    model = family.model(family.config(), family.model.heads_for(head_config), head_config)
    model.initialize(torch.Generator().manual_seed(0))
    return moved(model)


def labels_for(head_config: HeadConfig, random: np.random.Generator, lengths: list[int], together: int) -> dict:
    """As `pack` takes them. Numbers are eighths, which float32 holds exactly."""
    groups = len(lengths) // together
    if head_config.output == "tokens":
        return {"token_labels": [random.integers(-1, head_config.num_labels, n) for n in lengths]}
    if head_config.output == "spans":
        return {"labels": np.array([sorted(random.integers(0, n, 2)) for n in lengths])}
    if head_config.output == "choice":
        labels = random.integers(0, together, groups)
    elif head_config.problem_type == "regression":
        labels = random.integers(-16, 40, groups) / 8
    elif head_config.problem_type == "multi_label_classification":
        labels = random.integers(0, 2, (groups, head_config.num_labels)).astype(np.float32)
    else:
        labels = random.integers(0, head_config.num_labels, groups)
    return {"labels": np.repeat(labels, together, 0)}


def their_inputs(family: Family, ids: list, segments: list, together: int = 1) -> dict[str, torch.Tensor]:
    inputs = family.padded(ids, segments)
    return {name: each.view(-1, together, each.shape[1]) if together > 1 else each for name, each in inputs.items()}


def their_labels(head_config: HeadConfig, labels: dict, longest: int, together: int) -> dict[str, torch.Tensor]:
    if head_config.output == "tokens":
        return {"labels": to_padded([np.where(row < 0, -100, row) for row in labels["token_labels"]], longest, -100)}
    values = torch.from_numpy(labels["labels"][::together])
    if head_config.output == "spans":
        return {"start_positions": values[:, 0], "end_positions": values[:, 1]}
    return {"labels": values.double() if values.is_floating_point() else values}


def their_answers(head_config: HeadConfig, out, lengths: list[int]) -> list[torch.Tensor]:
    """The outputs of the padded batch at real tokens."""
    if head_config.output == "spans":
        both = torch.stack([out.start_logits, out.end_logits], -1)
        return [row[:n] for row, n in zip(both, lengths, strict=True)]
    if head_config.output == "tokens":
        return [row[:n] for row, n in zip(out.logits, lengths, strict=True)]
    return list(out.logits)


def our_answers(head_config: HeadConfig, found: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    if head_config.output == "spans":
        assert all((row[n : max(lengths)] == MASKED_LOGIT).all() for row, n in zip(found, lengths, strict=False))
        return [row[:n] for row, n in zip(found, lengths, strict=False)]
    return list(found.split(lengths)) if head_config.output == "tokens" else list(found)


def check_close(found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-9) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= tolerance


# `transformers` also lets the softmax of spans run over padding, whose scores are as high as any, so its loss depends
# on how long the neighbours are. Losses of spans are therefore compared on sequences of one length.
@pytest.mark.parametrize(
    ("name", "lengths"), [(name, LENGTHS) for name in KINDS if name != "spans"] + [("spans", [11] * 5), ("spans", [20])]
)
def test_answers_loss_and_gradients(tmp_path, random, family, name, lengths):
    head_config, together = KINDS[name], TOGETHER.get(name, 1)
    their_model(family, name).save_pretrained(tmp_path)
    theirs = family.their_class(head_config).from_pretrained(tmp_path, attn_implementation="eager").double().eval()
    ours = load_model(tmp_path).double()
    ids, segments = sequences(random, lengths)
    labels = labels_for(head_config, random, lengths, together)
    batch = pack(ids, segments, **labels, group_size=together)
    expected = theirs(
        **their_inputs(family, ids, segments, together), **their_labels(head_config, labels, max(lengths), together)
    )
    check_close(our_answers(head_config, ours.outputs(batch), lengths), their_answers(head_config, expected, lengths))
    objective = TaskObjective(head_config)
    step_inputs = objective.prepare(batch, 0)
    loss = objective.loss_sums(ours, step_inputs)["task"] / step_inputs.total_weights()["task"]
    assert loss.dtype == torch.float64 and abs(loss.item() - expected.loss.item()) <= 1e-9
    loss.backward()
    expected.loss.backward()
    check_gradients(ours, theirs, 1e-9)


def test_spans_of_uneven_sequences(tmp_path, random, family):
    """By position: scores at true tokens are the same, and beyond the end of a sequence nothing can be chosen."""
    their_model(family, "spans").save_pretrained(tmp_path)
    theirs = family.their_class(KINDS["spans"]).from_pretrained(tmp_path, attn_implementation="eager").double()
    ours = load_model(tmp_path).double()
    ids, segments = sequences(random, LENGTHS)
    expected = theirs.eval()(**their_inputs(family, ids, segments))
    check_close(
        our_answers(KINDS["spans"], ours.outputs(pack(ids, segments)), LENGTHS),
        their_answers(KINDS["spans"], expected, LENGTHS),
    )


@pytest.mark.parametrize("name", KINDS)
def test_opens_what_transformers_saved(tmp_path, family, name):
    head_config = KINDS[name]
    their_model(family, name).save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert ours.head_config == head_config
    assert ours.heads == family.model.heads_for(head_config)
    task = load_task(tmp_path, ours.head_config)
    kinds = {"single": "classification", "multi": "multi-label", "number": "regression", "tokens": "tagging"}
    assert task.task.kind == kinds.get(name, head_config.output)


@pytest.mark.parametrize(
    ("num_labels", "problem_type"), [(1, "regression"), *((n, "single_label_classification") for n in (2, 3))]
)
def test_problem_type_that_is_not_given(tmp_path, family, num_labels, problem_type):
    """Their folders often lack `problem_type`: one label is a number, several are classes, as they take it."""
    kind = family.their_class(KINDS["single"])
    kind(family.their_config(num_labels=num_labels)).save_pretrained(tmp_path)
    head_config = load_model(tmp_path).head_config
    assert (head_config.problem_type, head_config.num_labels) == (problem_type, num_labels)


@pytest.mark.parametrize("name", KINDS)
def test_transformers_opens_what_is_saved(tmp_path, random, family, name):
    head_config, together = KINDS[name], TOGETHER.get(name, 1)
    ours = our_model(family, head_config)
    save_model(tmp_path, ours)
    theirs, report = family.their_class(head_config).from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    if head_config.labels:
        assert theirs.config.id2label == dict(enumerate(head_config.labels))
        assert theirs.config.label2id == {label: i for i, label in enumerate(head_config.labels)}
    if head_config.output == "sequence":
        assert theirs.config.problem_type == head_config.problem_type
    assert theirs.config.architectures == [type(theirs).__name__]
    ids, segments = sequences(random, LENGTHS)
    expected = theirs.double().eval()(**their_inputs(family, ids, segments, together))
    found = ours.double().outputs(pack(ids, segments, group_size=together))
    check_close(our_answers(head_config, found, LENGTHS), their_answers(head_config, expected, LENGTHS))


def test_transformers_opens_the_spans_of_a_model_with_a_classifier(tmp_path, random, family):
    """It has no layer of that name, warns, and predicts the same spans."""
    ours = our_model(family, OWN["answerable"])
    save_model(tmp_path, ours)
    theirs, report = family.their_class(KINDS["spans"]).from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"] and all("answerable" in key for key in report["unexpected_keys"])
    ids, segments = sequences(random, LENGTHS)
    expected = theirs.double().eval()(**their_inputs(family, ids, segments))
    found = ours.double().outputs(pack(ids, segments))
    check_close(
        our_answers(OWN["answerable"], found[:, :-1], LENGTHS), their_answers(KINDS["spans"], expected, LENGTHS)
    )


@pytest.mark.parametrize("name", [*KINDS, *OWN])
def test_folder_gives_the_model_back(tmp_path, family, name):
    ours = our_model(family, (KINDS | OWN)[name])
    save_model(tmp_path, ours)
    again = load_model(tmp_path)
    assert again.head_config == ours.head_config and again.heads == ours.heads and again.config == ours.config
    state = again.state_dict()
    assert state.keys() == ours.state_dict().keys()
    assert all(torch.equal(value, state[key]) for key, value in ours.state_dict().items())


@pytest.mark.parametrize("name", [*KINDS, *OWN])
def test_no_neighbour_changes_an_answer(random, family, name):
    """Alone, in a batch, and in a batch with dead sequences at the end, of which one may be empty."""
    head_config, together = (KINDS | OWN)[name], TOGETHER.get(name, 1)
    model = our_model(family, head_config).double()
    ids, segments = sequences(random, LENGTHS)
    batch = pack(ids, segments, group_size=together)
    groups = range(0, len(ids), together)
    num_filled = {1: 10, 2: 10, 3: 12}[together]
    filled = [batch.bucketed(batch.num_tokens + 9, num_filled), batch.bucketed(128, num_filled)]
    for each in (batch, *filled):
        found = model.outputs(each)
        if head_config.output == "tokens":
            rows = found[: each.num_real_tokens].split(LENGTHS)
        else:
            rows = found[: len(groups)]
        for row, first in zip(rows, groups, strict=True):
            own = slice(first, first + together)
            alone = model.outputs(pack(ids[own], segments[own], group_size=together))
            alone = alone if head_config.output == "tokens" else alone[0]
            if head_config.output == "spans":
                classifier = [row[-1:]] if head_config.has_answer_classifier else []
                row = torch.cat([row[: LENGTHS[first]], *classifier])
            assert row.shape == alone.shape
            assert (row - alone).abs().max() <= 1e-12


@pytest.mark.parametrize("name", [*KINDS, *OWN])
def test_every_layer_of_a_head_learns(random, family, name):
    """Each parameter gets a gradient from the loss, but for the bias of a choice: it moves all choices alike."""
    head_config, together = (KINDS | OWN)[name], TOGETHER.get(name, 1)
    model = our_model(family, head_config).double()
    ids, segments = sequences(random, LENGTHS)
    labels = labels_for(head_config, random, LENGTHS, together)
    objective = TaskObjective(head_config)
    batch = pack(ids, segments, **labels, group_size=together)
    objective.loss_sums(model, objective.prepare(batch, 0))["task"].backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        if (head_config.output, parameter_name) != ("choice", "task.out.bias"):
            assert parameter.grad.any(), parameter_name


def test_numbers_keep_their_precision_in_bfloat16(random):
    """Around 2,000, numbers in bfloat16 would have steps of 8."""
    ids, _ = sequences(random, LENGTHS)
    model = our_model(FAMILIES["bert"], KINDS["number"])
    with torch.no_grad():
        model.task.out.bias.fill_(2000.0)
        expected = model.outputs(pack(ids))
        with torch.autocast("cpu", torch.bfloat16):
            found = model.outputs(pack(ids))
    assert (found - expected).abs().max() < 0.5
    assert len(found.unique()) > 1
