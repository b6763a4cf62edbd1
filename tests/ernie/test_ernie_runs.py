"""ERNIE from the command line: pre-training, fine-tuning, prediction; exact resume; other graphs are refused."""

import json
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from ernie_runs import pretrain_ernie, quiet
from safetensors.torch import load_file
from tiny_runs import same

import hornbook as library
from hornbook.deployment.measuring import open_measured_model
from hornbook.files import read_json
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph
from hornbook.inference.predictor import load_predictor
from hornbook.interop.folder import load_model
from hornbook.models.ernie import Ernie
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.train.step import Stepper

WORDS = [("river", "garden"), ("teacher", "bread"), ("lantern", "harbour")]
TINY = {"epochs": 2, "lr": 1e-3, "batch_size": 4, "overrides": {"runtime.threads": 1}, "log": quiet}


@contextmanager
def killed_at(step: int, monkeypatch):
    """A run in this context ends at this step, without a checkpoint."""
    train_step = Stepper.train_step

    def train_until(self, batch, number, lr):
        if number == step:
            raise RuntimeError("killed")
        return train_step(self, batch, number, lr)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="killed"):
        patched.setattr(Stepper, "train_step", train_until)
        yield


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> dict:
    """Files of labelled data, for entity typing and relations."""
    folder = tmp_path_factory.mktemp("rows")
    typing, relations = [], []
    for i in range(36):
        a, b = WORDS[i % 3]
        types = [["thing", "water"], ["person"], ["thing"]][i % 3]
        typing.append({"text": f"the {a} and the {b} of {i}", "start": 4, "end": 4 + len(a), "labels": types})
        relation = ["In(e1,e2)", "Other", "In(e2,e1)"][i % 3]
        relations.append({"text": f"the <e1>{a}</e1> and the <e2>{b}</e2> of {i}", "label": relation})
    for name, found in (("typing", typing), ("relations", relations)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, found)))
    return {"typing": folder / "typing.jsonl", "relations": folder / "relations.jsonl"}


def test_it_starts_from_a_bert(made, tmp_path):
    """Text layers and the token side of the others have BERT's weights; the vectors are the graph's."""
    pretrain_ernie(tmp_path / "run", made, steps=1, overrides={"optimizer.lr": 1e-12})
    bert, ernie = load_model(made / "bert").state_dict(), load_model(tmp_path / "run")
    assert all(torch.allclose(ernie.state_dict()[name], value, atol=1e-6) for name, value in bert.items())
    assert [type(block).__name__ for block in ernie.blocks] == ["FusionBlock", "FusionBlock"]
    vectors = GraphVectors(made / "vectors", Graph(made / "graph")).entities
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.allclose(ernie.entities.weight.numpy(), expected, atol=1e-6)


def test_a_run(made):
    run = read_json(made / "ernie" / "run.json")
    assert run["family"] == "hornbook-ernie" and run["terms"] == {"mlm": 1.0, "nsp": 1.0, "dea": 1.0}
    assert run["inputs"]["graph"] == Graph(made / "graph").fingerprint == run["settings"]["model"]["graph"]
    lines = [json.loads(line) for line in (made / "ernie" / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["kind"] == "validation"]
    assert all(0 <= line["dea_accuracy"] <= 1 and line["dea"] > 0 for line in validations)
    assert ", dea " in dict(library.describe(made / "ernie")["lines"])["last training loss"]
    before, after = (load_model(made / each) for each in ("bert", "ernie"))
    assert not torch.equal(before.blocks[0].fc1.weight, after.blocks[0].fc1.weight)
    assert library.load(made / "ernie").fill_mask("the [MASK] of")[0]
    assert library.load(made / "ernie").embed(["the river"]).shape == (1, 32)


def test_fill_mask_reads_entities(made):
    """With the graph, a text that mentions an entity gets other probabilities; one that mentions none gets the same."""
    model, graph = library.load(made / "ernie"), made / "graph"
    texts = ["the river is [MASK] the old garden", "the [MASK] of"]
    plain, read = model.fill_mask(texts), model.fill_mask(texts, graph=graph)
    assert read[0] != plain[0] and read[1] == plain[1]
    alone = [model.fill_mask(text, graph=graph) for text in texts]
    chances = [[guess.probability for masks in each for guess in masks[0]] for each in (read, alone)]
    assert chances[0] == pytest.approx(chances[1], abs=1e-6)
    with pytest.raises(ValueError, match="graph= is for ERNIE"):
        library.load(made / "bert").fill_mask(texts, graph=graph)


def test_resuming_is_exact(made, tmp_path, monkeypatch):
    """After a kill between checkpoints, and before the first one."""
    for stop_at in (2, 5):
        out, settings = tmp_path / str(stop_at), {"checkpoint.at_start": False}
        with killed_at(stop_at, monkeypatch):
            pretrain_ernie(out, made, overrides=settings)
        outcome = pretrain_ernie(out, made, resume=True, overrides=settings)
        assert outcome.step == 6 and same(out, made / "ernie")


def test_what_is_trained(made, tmp_path):
    """The ablations: random vectors, trained vectors, no fusion, no prediction of entities."""
    first = load_file(made / "ernie" / "model.safetensors")["bert.entity_embeddings.weight"]

    def vectors(name: str, **overrides) -> torch.Tensor:
        pretrain_ernie(tmp_path / name, made, steps=2, overrides=overrides)
        return load_file(tmp_path / name / "model.safetensors")["bert.entity_embeddings.weight"]

    assert torch.equal(vectors("frozen"), first)
    assert not torch.equal(vectors("trained", **{"model.trains_entities": True}), first)
    assert not torch.allclose(vectors("random", **{"model.entity_vectors": "random"}), first, atol=0.1)
    assert torch.equal(vectors("unfused", **{"model.fusion": False}), first)
    vectors("silent", **{"objective.entity_weight": 0})
    assert read_json(tmp_path / "silent" / "run.json")["terms"] == {"mlm": 1.0, "nsp": 1.0}
    assert load_model(tmp_path / "silent").heads == ("pooler", "mlm", "sentence")


def test_it_continues_from_an_ernie(made, tmp_path):
    options = {"init_from": made / "ernie", "vectors": None}
    pretrain_ernie(tmp_path / "more", made, steps=1, graph=None, **options)
    assert load_model(tmp_path / "more").config == load_model(made / "ernie").config
    with pytest.raises(ValueError, match="was trained with another graph"):
        pretrain_ernie(tmp_path / "x", made, steps=1, graph=made / "other-graph", **options)
    with pytest.raises(ValueError, match="has entity vectors already: leave out vectors"):
        pretrain_ernie(tmp_path / "x", made, steps=1, init_from=made / "ernie")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": "other-graph"}, "holds vectors of another graph than"),
        ({"graph": None}, "vectors= needs graph="),
        ({"graph": None, "vectors": None}, "needs a graph with vectors: give graph= and vectors="),
        ({"vectors": None}, "make them with 'hornbook graph embed' and give vectors="),
        ({"overrides": {"model.entity_width": 16}}, "have 8 numbers: leave it out"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(made, tmp_path, options, message):
    if options.get("graph"):
        options = options | {"graph": made / options["graph"]}
    with pytest.raises(ValueError, match=message):
        pretrain_ernie(tmp_path / "run", made, **options)
    assert not (tmp_path / "run").exists()


def test_other_corpora_and_presets_are_refused(made, tmp_path, hornbook):
    graph = ["--graph", made / "graph", "--vectors", made / "vectors", "--steps", 1, "--out", tmp_path / "run"]
    found = hornbook("pretrain", "ernie-tiny", "--corpus", made / "plain-corpus", *graph)
    assert found.status == 2 and "is not linked to a graph: build it with 'hornbook corpus build" in found.error
    found = hornbook("pretrain", "bert-tiny", "--corpus", made / "corpus", *graph)
    assert found.status == 2 and "--graph is for ERNIE" in found.error
    found = hornbook("pretrain", "ernie-tiny", "--from", made / "bert", "--show", *graph, "--json")
    assert found.status == 0 and found.answer["model.num_entities"] == 14


def test_fine_tuning_reads_entities(made, rows, tmp_path, monkeypatch):
    run = library.finetune(
        made / "ernie", rows["typing"], "entity-typing", tmp_path / "run", graph=made / "graph", **TINY
    )
    predictor, (member,), read = run.predictor, run.predictor.members, []

    module = library.inference.predictor
    run_model = module.run_model
    watched = lambda model, encoded, *rest: read.append(encoded.entities) or run_model(model, encoded, *rest)  # noqa: E731
    monkeypatch.setattr(module, "run_model", watched)
    for linker in (member.linker, None):
        predictor.members[0] = module.replace(member, linker=linker)
        predictor.predict("the [ENT] river [ENT] and the garden")
    assert isinstance(member.model, Ernie)
    assert [bool(entities and len(entities[0][1])) for entities in read] == [True, False]
    linker = open_measured_model(tmp_path / "run").predictor.members[0].linker
    assert linker is not None, "compare scores it with its entities"
    saved = read_json(tmp_path / "run" / "task.json")
    assert saved["graph"]["fingerprint"] == Graph(made / "graph").fingerprint
    assert read_json(tmp_path / "run" / "run.json")["inputs"]["graph"] == saved["graph"]["fingerprint"]
    card = (tmp_path / "run" / "README.md").read_text()
    assert "loads in hornbook only" in card and "[ENT] London [ENT]" in card


def test_fine_tuning_resumes_exactly(made, rows, tmp_path, monkeypatch):
    options = {"graph": made / "graph"} | TINY
    library.finetune(made / "ernie", rows["relations"], "relation", tmp_path / "whole", **options)
    with killed_at(5, monkeypatch):
        library.finetune(made / "ernie", rows["relations"], "relation", tmp_path / "killed", **options)
    library.finetune(made / "ernie", rows["relations"], "relation", tmp_path / "killed", resume=True, **options)
    assert same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("task", ["entity-typing", "relation"])
def test_a_plain_encoder_learns_the_same_tasks(made, rows, tmp_path, task):
    data = rows["typing" if task == "entity-typing" else "relations"]
    run = library.finetune(
        made / "bert", data, task, tmp_path / "run", **TINY | {"epochs": 20, "lr": 3e-3, "batch_size": 2}
    )
    assert run.score > 0.9
    marks = "[ENT] river [ENT]" if task == "entity-typing" else "[HD] river [HD] and the [TL] garden [TL]"
    (found,) = run.predict(f"the {marks} of 7")
    assert found.label == (("thing", "water") if task == "entity-typing" else "In(e1,e2)")
    assert "transformers" in (tmp_path / "run" / "README.md").read_text()


def test_commands(made, rows, tmp_path, hornbook):
    out, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(made / "graph", tmp_path / "graph")
    data = ["--task", "relation", "--data", rows["relations"], "--set", "runtime.threads=1", "--epochs", 1]
    found = hornbook("finetune", made / "ernie", *data, "--graph", tmp_path / "graph", "--out", out)
    assert found.status == 0 and "macro_f1" in found.out
    text = "the [HD] river [HD] and the [TL] bread [TL]"
    assert hornbook("predict", out, text, "--json").answer["predictions"][0]["mentions"] == ["river", "bread"]
    assert "accuracy" in hornbook("evaluate", out, "--data", rows["relations"]).stdout
    found = hornbook("export", out, "--format", "onnx", "--out", tmp_path / "x")
    assert found.status == 2 and "also reads entities" in found.error
    (tmp_path / "graph").rename(moved)
    found = hornbook("predict", out, text)
    assert found.status == 2 and "is not there: give its folder with --graph" in found.error
    assert hornbook("predict", out, text, "--graph", moved).status == 0
    found = hornbook("predict", out, text, "--graph", made / "other-graph")
    assert found.status == 2 and "is not the graph that the model was trained with" in found.error
    for model, options, message in (
        ("bert", ["--graph", moved], "the model is a bert, which reads no entities"),
        ("ernie", ["--graph", made / "other-graph"], "is not the graph that the model was trained with"),
        (
            "ernie",
            ["--graph", moved, "--task", "classification"],
            "graph is for entity-typing, relation and multiple choice",
        ),
    ):
        found = hornbook("finetune", made / model, *data, *options, "--out", tmp_path / "x")
        assert found.status == 2 and message in found.error
    assert load_predictor(out, graph=moved).predict(text)[0].label


def test_the_published_settings():
    settings = preset_settings("ernie-base")
    model = settings.model
    assert (model.num_layers, model.first_fusion, model.entity_width, model.entity_heads) == (12, 6, 100, 4)
    assert settings.optimizer.lr == 5e-5 and settings.data.length_at(0, 10)[0] == 256
    assert settings.batch.tokens == 512 * 256 and settings.layout == "nsp"
    objective = settings.objective
    assert (objective.replaced_fraction, objective.unlinked_fraction, objective.entity_weight) == (0.05, 0.15, 1.0)
