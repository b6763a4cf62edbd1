"""Fine-tuning with a knowledge graph, from the command to the explanation, with tools that training never saw."""

import json
import shutil
import signal

import pytest
from forked import status_of
from tiny_runs import same
from tool_questions import questions, write_graph

import hornbook as library
from hornbook.cli.overwriting import RUN, refuse_foreign
from hornbook.files import read_json
from hornbook.graph.embedding.training import embed_graph
from hornbook.inference.explaining import explain
from hornbook.inference.predictor import load_predictor
from hornbook.runs.finetuning.finetune import finetune

FAST = {"runtime.threads": 1, "layers.frozen": -1, "reason.width": 32}
QUIET = {"log": lambda words: None}


def learn(encoder, graph, out, language, epochs=12, overrides=None, **more):
    rows = questions(language)
    data = {"train": rows, "dev": rows[:8]}
    options = {"reason": "kagnet", "graph": graph, "epochs": epochs, "batch_size": 8, "lr": 2e-3} | QUIET | more
    return finetune(encoder, data, "choice", out, overrides=FAST | (overrides or {}), **options)


@pytest.fixture(scope="module")
def learned(tmp_path_factory, tiny_run):
    """Run folders by language."""
    folder = tmp_path_factory.mktemp("learned")
    for language in ("en", "ko"):
        learn(tiny_run, write_graph(folder / f"graph-{language}", language), folder / language, language)
    return folder


ASKED = {
    "en": ("They dug the ground to plant flowers.", "They dug the ground to build a house.", "With what?"),
    "ko": ("꽃을 위해 땅을 팠다.", "집을 위해 땅을 팠다.", "무엇으로?"),
}
TOOLS = {"en": ["trowel", "excavator"], "ko": ["모종삽", "굴착기"]}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_another_context_has_another_graph_and_another_answer(learned, language):
    """Neither tool nor purpose was in the training data."""
    predictor = load_predictor(learned / language)
    planting, building, question = ASKED[language]
    for tools in (TOOLS[language], TOOLS[language][::-1]):
        found = [explain(predictor, question, tools, context) for context in (planting, building)]
        assert [each.answer for each in found] == TOOLS[language]
        for each in found:
            paths = {str(path.path) for path in each.choices[each.choice].paths}
            assert any("--UsedFor--" in path and each.answer in path for path in paths)
            predicted = predictor.predict([(each.question, tools)])[0]
            assert predicted.choice == each.choice
            assert predicted.probabilities == pytest.approx([one.probability for one in each.choices], abs=1e-5)


def test_explained_weights_are_those_of_the_model(learned):
    predictor = load_predictor(learned / "en")
    found = explain(predictor, "With what do they dig the ground to build a house?", ["excavator", "trowel", "moon"])
    *tools, moon = found.choices
    assert moon.paths == () and moon.concepts == () and set(found.concepts) == {"ground", "house"}
    member = predictor.members[0]
    encoded = predictor.task.for_example(example := predictor._examples([(found.question, TOOLS["en"][::-1])])[0])
    encoded = member.grounder.attach(encoded.encode([example], predictor.tokenizer, predictor.max_length), [example])
    head = member.model.task
    head.keeps_weights = True
    batch = encoded.packed([0, 1])
    member.model.outputs(batch)
    paths = batch.streams["concept_paths"]
    weights = (head.weights.paths_K * head.weights.pairs_P.index_select(0, paths.pairs_K)).split(
        [len(each.paths) for each in tools]
    )
    for each, of_model in zip(tools, weights, strict=True):
        assert sum(path.weight for path in each.paths) == pytest.approx(1, abs=1e-5)
        assert sorted(path.weight for path in each.paths) == pytest.approx(sorted(of_model.tolist()), abs=1e-5)
        assert all(path.weight == pytest.approx(path.pair_weight * path.path_weight) for path in each.paths)
    assert sum(each.probability for each in found.choices) == pytest.approx(1)
    assert [each.probability for each in tools] != pytest.approx([each.without_paths for each in tools], abs=1e-3)


def test_the_command_prints_paths_and_draws_them(learned, hornbook, tmp_path):
    page = tmp_path / "page.html"
    words = ["explain", learned / "en", "With what?", "--choices", "trowel, excavator", "--context", ASKED["en"][0]]
    done = hornbook(*words, "--out", page)
    assert done.status == 0 and "flower <--UsedFor-- trowel" in done.stdout and done.stdout.rstrip().endswith(str(page))
    drawn = page.read_text(encoding="utf-8")
    assert "<svg" in drawn and "UsedFor" in drawn and "http" not in drawn.replace("http-equiv", "")
    answer = hornbook(*words, "--out", page, "--json").answer
    assert answer["answer"] == "trowel" and [each["text"] for each in answer["choices"]] == TOOLS["en"]
    assert sum(path["weight"] for path in answer["choices"][0]["paths"]) == pytest.approx(1, abs=1e-5)
    done = hornbook("explain", learned / "ko", ASKED["ko"][1], "--choices", "모종삽|||굴착기")
    assert (
        done.status == 0 and "집 <--UsedFor-- 굴착기" in done.stdout and (learned / "ko" / "explanation.html").exists()
    )
    refuse_foreign(learned / "ko", RUN)  # the page does not keep --overwrite from replacing the run
    for bad in (["", "--choices", "a,b"], ["what?", "--choices", "a"], ["what?", "--choices", "a,,b"]):
        assert "at least two answers" in hornbook("explain", learned / "en", *bad).error


def test_info_names_the_graph(learned, hornbook):
    assert str(learned / "graph-en" / "graph") in hornbook("info", learned / "en").stdout


def test_names_are_escaped(tmp_path):
    from hornbook.report.explained import write_explanation

    path = {"entities": ["<b>", "한 개"], "hops": [{"relations": ["&"], "inverse": []}], "text": "<b> --&--> 한 개"}
    path |= {"weight": 1.0, "pair_weight": 1.0, "path_weight": 1.0, "score": 1.0}
    choice = {"text": "<i>", "probability": 1.0, "without_paths": 1.0, "concepts": ["한 개"], "paths": [path]}
    found = {"question": "<u>", "choice": 0, "answer": "<i>", "concepts": ["<b>"], "choices": [choice]}
    text = write_explanation(tmp_path / "page.html", found, "run").read_text(encoding="utf-8")
    assert not any(tag in text for tag in ("<b>", "<i>", "<u>")) and "한 개" in text


KILLED = """
import os, sys
from tool_questions import questions
from hornbook.runs.finetuning.finetune import finetune
encoder, graph, vectors, out, stop = sys.argv[1:]
def watch(status):
    if status.unit == "step" and status.step == int(stop):
        os.kill(os.getpid(), 9)
finetune(encoder, {"train": questions("en"), "dev": questions("en")[:8]}, "choice", out, reason="kagnet", graph=graph,
         vectors=vectors, epochs=1, batch_size=8, lr=2e-3, resume=True, on_progress=watch, log=lambda words: None,
 overrides={"runtime.threads": 1, "reason.width": 32, "checkpoint.every_steps": 2, "runtime.log_every_steps": 1})
"""


@pytest.fixture(scope="module")
def with_vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    graph = write_graph(folder, "en")
    embed_graph(graph, folder / "vectors", model="transe", width=8, epochs=2, held_out=0, device="cpu")
    return folder


def test_resume_after_kill_is_bit_exact(tmp_path, tiny_run, with_vectors):
    inputs = (with_vectors / "graph", with_vectors / "vectors")
    overrides = {"checkpoint.every_steps": 2, "runtime.log_every_steps": 1, "layers.frozen": 0}
    options = {"epochs": 1, "vectors": inputs[1], "overrides": overrides}
    whole = learn(tiny_run, inputs[0], tmp_path / "whole", "en", **options)
    assert status_of(KILLED, tiny_run, *inputs, tmp_path / "killed", 5) == -signal.SIGKILL
    last = learn(tiny_run, inputs[0], tmp_path / "killed", "en", resume=True, **options)
    assert same(whole.out, last.out) and last.scores == whole.scores
    settings = read_json(whole.out / "run.json")["settings"]
    assert settings["reason"]["graph"] == str(inputs[0].resolve())
    assert settings["layers"]["head_lr_ratio"] == 1  # the learning rate is above that of the graph's layers


@pytest.mark.parametrize(
    "settings",
    [
        {"reason.convolution": False},
        {"reason.lstm": False},
        {"reason.attention": False},
        {"reason.control": "shuffled-graph"},
        {"reason.control": "random-vectors"},
    ],
    ids=lambda settings: next(iter(settings.values())) or next(iter(settings)),
)
def test_ablations_and_controls_train_and_open_again(tmp_path, tiny_run, with_vectors, settings):
    run = learn(
        tiny_run, with_vectors / "graph", tmp_path / "run", "en", 0.5, settings, vectors=with_vectors / "vectors"
    )
    again = load_predictor(run.out)
    rows = [json.loads(line) for line in (run.out / "predictions-dev.jsonl").read_text().splitlines()]
    found = again.predict([(row["context"], row["choices"]) for row in rows])
    for each, row in zip(found, rows, strict=True):
        assert each.probabilities == pytest.approx(row["probabilities"], abs=1e-4)
    shape = again.members[0].model.head_config.graph
    assert (shape.convolution, shape.lstm, shape.attention) == tuple(
        settings.get(f"reason.{name}", True) for name in ("convolution", "lstm", "attention")
    )
    inputs = again.members[0].grounder
    assert inputs.uses_vectors == (settings.get("reason.control") != "random-vectors")
    if settings.get("reason.attention") is False:
        (weights,) = {round(path.path_weight * len(paths), 5) for paths in [explained_paths(again)] for path in paths}
        assert weights == 1


def explained_paths(predictor):
    """The paths of the pair that has most of them."""
    by_pair = {}
    for path in explain(predictor, "They dug the ground to sew a shirt.", ["needle", "brush"]).choices[0].paths:
        by_pair.setdefault(path.path.entities[0], []).append(path)
    return max(by_pair.values(), key=len)


def test_evaluate_and_ensembles(learned):
    rows = questions("en")[:12]
    scores = library.load_predictor(learned / "en").evaluate(rows)
    assert scores["splits"]["dev"]["accuracy"]["value"] >= 0.9
    several = load_predictor([learned / "en", learned / "ko"])
    assert len(several.predict([(row["context"], row["choices"]) for row in rows])) == 12
    with pytest.raises(ValueError, match="give one run"):
        explain(several, "what?", ["a", "b"])


def test_a_moved_graph_is_found_and_a_changed_one_refused(learned, tmp_path, tiny_run, with_vectors):
    graph, vectors = (shutil.copytree(with_vectors / name, tmp_path / "made" / name) for name in ("graph", "vectors"))
    run = learn(tiny_run, graph, tmp_path / "run", "en", 0.5, vectors=vectors).out
    expected = load_predictor(run).predict([("They dug.", TOOLS["en"])])
    for path in (graph, vectors):
        path.rename(tmp_path / path.name)  # next to the run
    assert load_predictor(run).predict([("They dug.", TOOLS["en"])]) == expected
    shutil.rmtree(tmp_path / "vectors")
    embed_graph(tmp_path / "graph", tmp_path / "vectors", model="transe", width=8, epochs=1, held_out=0, device="cpu")
    with pytest.raises(ValueError, match=r"the vectors in .*vectors changed since .*run was trained"):
        load_predictor(run)
    shutil.rmtree(tmp_path / "graph")
    with pytest.raises(ValueError, match=r"there is no folder .*made/graph"):
        load_predictor(run)
    shutil.copytree(learned / "graph-ko" / "graph", tmp_path / "graph")
    with pytest.raises(ValueError, match="vectors of another graph"):
        load_predictor(run)


def test_resuming_with_another_graph_is_refused(tmp_path, tiny_run, with_vectors):
    graph = shutil.copytree(with_vectors / "graph", tmp_path / "graph")
    run = learn(tiny_run, graph, tmp_path / "run", "en", 0.25).out
    (run / "scores.json").unlink()
    shutil.rmtree(graph)
    write_graph(tmp_path, "ko")
    with pytest.raises(ValueError, match=r"the graph in .* is not what .*run was started with"):
        learn(tiny_run, graph, run, "en", 0.25, resume=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reason", "kagnet"], "--reason kagnet needs a graph"),
        (["--graph", "GRAPH"], "--graph has no effect without --reason: give --reason kagnet"),
        (["--reason", "kagnet", "--graph", "nowhere"], "there is no folder"),
        (["--reason", "kagnet", "--graph", "GRAPH", "--vectors", "GRAPH"], "holds no vectors.safetensors"),
        (["--reason", "kogmet", "--graph", "GRAPH"], "kogmet"),
        (["--reason", "kagnet", "--graph", "GRAPH", "--task", "classification"], "--reason is for multiple choice"),
    ],
)
def test_wrong_options(words, message, tmp_path, tiny_run, with_vectors, hornbook):
    is_text = "classification" in words
    rows = [{"text": str(i), "label": i % 2} for i in range(20)] if is_text else questions("en")
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    words = [str(with_vectors / "graph") if word == "GRAPH" else word for word in words]
    task = [] if is_text else ["--task", "choice"]
    done = hornbook("finetune", tiny_run, "--data", data, "--out", tmp_path / "run", *task, *words)
    assert done.status == 2 and message in done.error and "Traceback" not in done.error


def test_what_a_run_with_a_graph_cannot_do(learned, tiny_run, tmp_path, hornbook):
    assert (
        "neither exported nor compared"
        in hornbook("export", learned / "en", "--format", "onnx", "--out", tmp_path / "onnx").error
    )
    assert (
        "does not read a knowledge graph"
        in hornbook("explain", plain_run(tmp_path, tiny_run), "what?", "--choices", "a,b").error
    )
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in questions("en")), encoding="utf-8")
    words = ["--task", "choice", "--data", data, "--out", tmp_path / "student"]
    assert "reads a knowledge graph" in hornbook("distill", learned / "en", "--student", tiny_run, *words).error
    words += ["--set", "reason.method=kagnet", "--set", f"reason.graph={learned / 'graph-en' / 'graph'}"]
    assert "cannot be distilled" in hornbook("distill", tmp_path / "plain", "--student", tiny_run, *words).error


def plain_run(folder, encoder):
    return finetune(encoder, questions("en"), "choice", folder / "plain", epochs=0.1, overrides=FAST, **QUIET).out


def test_the_log_tells_how_much_the_graph_covers(learned, tiny_run, tmp_path):
    for language, expected in (
        ("en", "2.0 paths per answer; 0.0% of the answers have none"),
        ("ko", "in their language"),
    ):
        said = []
        learn(tiny_run, learned / f"graph-{language}" / "graph", tmp_path / language, "en", 0.1, log=said.append)
        assert any(expected in line for line in said), said


def test_finding_paths_reports_its_progress(tmp_path, tiny_run):
    shown = []
    graph = write_graph(tmp_path / "graph", "en")
    learn(tiny_run, graph, tmp_path / "run", "en", epochs=0.1, on_progress=shown.append)
    paths = [(status.step, status.num_steps) for status in shown if status.unit == "finding paths: question"]
    num_questions = len(questions("en"))
    assert paths[-2:] == [(num_questions, num_questions), (8, 8)]  # train, then dev


def test_a_trained_head_is_kept(learned, tiny_run, tmp_path):
    said = []
    learn(learned / "en", learned / "graph-en" / "graph", tmp_path / "more", "en", 0.1, log=said.append)
    assert any("keeping the multiple-choice head" in line for line in said)


def test_progress_is_reported_while_paths_are_found(tmp_path, tiny_run, with_vectors):
    units = set()
    options = {"epochs": 0.25, "on_progress": lambda status: units.add(status.unit)}
    learn(tiny_run, with_vectors / "graph", tmp_path / "run", "en", **options)
    assert "finding paths: question" in units
