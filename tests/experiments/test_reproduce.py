"""The runner: the smallest experiment end to end, stopped, killed, moved and resumed; nothing done twice."""

import json
import multiprocessing
import re
import shutil

import forked
import pytest
import torch
from safetensors.torch import load_file
from smallest import write_reviews, write_smallest

from hornbook.evaluation.experiments import jobs as running
from hornbook.evaluation.experiments import resolved
from hornbook.evaluation.experiments.pool import Pool
from hornbook.evaluation.experiments.resolved import ArmBudget
from hornbook.evaluation.experiments.runner import reproduce
from hornbook.files import read_json
from hornbook.report.info import describe


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def quiet(words: str) -> None:
    pass


@pytest.fixture(scope="module", autouse=True)
def fewer_counted_batches():
    """To estimate the tokens per batch takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolved, "NUM_COUNTED_BATCHES", 16)
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    write_smallest(folder)
    write_reviews(folder / "tasks")
    return folder


def run(home, corpus, out, **more):
    words = {"resume": True, "log": quiet} | more
    return reproduce(home / "smallest.toml", [corpus], home / "tasks", out, **words)


@pytest.fixture(scope="module")
def unbroken(home, tiny_corpus):
    out = home / "unbroken"
    found = run(home, tiny_corpus, out, resume=False)
    assert found.ended == "finished" and found.failures == {}
    return out


def left_by(out) -> dict[str, dict]:
    return {path.stem: read_json(path) for path in sorted((out / "jobs").iterdir())}


def scores(out) -> dict[str, float]:
    return {name: found["score"] for name, found in left_by(out).items() if "score" in found}


def same_weights(one, two) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, two))
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def test_what_it_leaves(unbroken):
    assert sorted(left_by(unbroken)) == [
        *(f"finetune-detecting-0-at-{share}-reviews-{k}" for share in ("0.5", "1") for k in (0, 1)),
        *(f"finetune-nsp-0-at-{share}-reviews-{k}" for share in ("0.5", "1") for k in (0, 1)),
        "pretrain-detecting-0",
        "pretrain-nsp-0",
        "sentence-head-nsp-0",
        "shared-words",
    ]
    for name in ("report.html", "score-by-flops.png", "RESULTS-smallest.md"):
        assert (unbroken / name).stat().st_size > 500
    assert list((unbroken / "running").iterdir()) == []
    assert not list(unbroken.rglob("optimizer.safetensors"))
    results = read_json(unbroken / "results.json")
    assert results["num_done"] == results["num_jobs"] == 12 and results["missing"] == {}
    assert {(row["arm"], row["share"]) for row in results["scores"] if row["task"] == "mean"} == {
        (arm, share) for arm in ("nsp", "detecting") for share in (0.5, 1.0)
    }
    record = results["arms"]["detecting"]["record"]
    assert record["memory"]["bytes"] > 1e6 and record["memory"]["of"]
    assert record["tokens_per_second"] > 0 and record["updates_per_second"] > 0
    assert record["parameters"] < record["trained_parameters"]  # the generator is not kept
    assert set(record["losses"]) == {"0.5", "1"} and "rtd" in record["losses"]["1"]
    assert (
        set(results["arms"]["nsp"]["sentence_head"]) == {"nsp", "sop"}
        and results["arms"]["detecting"]["sentence_head"] is None
    )


def test_flops_are_equal_to_within_a_step(unbroken):
    decided = read_json(unbroken / "run.json")
    step_flops = {name: arm["step_flops"] for name, arm in decided["arms"].items()}
    assert step_flops["nsp"] != step_flops["detecting"]
    for name, arm in decided["arms"].items():
        assert arm["steps"] >= 2 and abs(arm["steps"] * arm["step_flops"] - decided["flops"]) <= arm["step_flops"] / 2
        assert left_by(unbroken)[f"pretrain-{name}-0"]["steps"] == arm["steps"]
        # What the batches really held, which was foretold from a few of them.
        tokens = left_by(unbroken)[f"pretrain-{name}-0"]["tokens"] / arm["steps"]
        assert tokens == pytest.approx(arm["step_tokens"], rel=0.1) and tokens < 512


def test_checkpoints_are_at_their_shares():
    budget = ArmBudget(1000, 2.0, 3.0)
    assert [budget.step_at(share) for share in (0.25, 0.5, 1.0)] == [250, 500, 1000]
    assert budget.flops_at(0.25) == 500
    assert ArmBudget(1, 2.0, 3.0).step_at(0.25) == 1


def test_nothing_is_done_twice(home, tiny_corpus, unbroken, monkeypatch):
    for name in ("pretrain", "open_and_run", "sentence_head_accuracies", "shared_words_accuracies"):
        monkeypatch.setattr(running, name, lambda *_, **__: pytest.fail("run again"))
    before = {path: path.stat().st_mtime_ns for path in (unbroken / "jobs").iterdir()}
    assert run(home, tiny_corpus, unbroken).ended == "finished"
    assert before == {path: path.stat().st_mtime_ns for path in (unbroken / "jobs").iterdir()}


def killed_at(number):
    """Kills at the n-th look at a run, whichever it is."""
    looks = iter(range(1, 10**6))

    def on_progress(status):
        if next(looks) == number:
            raise Killed

    return on_progress


@pytest.mark.faults
def test_repeated_kills_do_not_change_the_results(home, tiny_corpus, unbroken, tmp_path):
    out, kills, done = tmp_path / "out", 0, []
    while True:
        try:
            found = run(home, tiny_corpus, out, on_progress=killed_at(6))
            break
        except Killed:
            kills += 1
            assert kills < 60
            assert set(done) <= set(left_by(out) if (out / "jobs").exists() else {})
            done = list(left_by(out))
    assert found.ended == "finished" and kills > 2
    assert scores(out) == scores(unbroken)
    for arm in ("nsp", "detecting"):
        assert same_weights(out / "pretrained" / f"{arm}-0", unbroken / "pretrained" / f"{arm}-0")


def test_it_stops_in_time_and_resumes_elsewhere(home, tiny_corpus, unbroken, tmp_path):
    found = run(home, tiny_corpus, tmp_path / "here", stop_after=1e-6)
    assert (found.ended, found.num_done) == ("stopped", 0)
    assert (tmp_path / "here" / "report.html").exists()  # of nothing yet
    with pytest.raises(Killed):  # in the midst of a fine-tuning
        run(home, tiny_corpus, tmp_path / "here", on_progress=killed_at(9))
    assert [path for path in (tmp_path / "here" / "running").iterdir() if path.name.startswith("finetune")]
    assert describe(tmp_path / "here")["num_done"] == len(left_by(tmp_path / "here")) > 0
    shutil.move(tmp_path / "here", tmp_path / "there")
    shutil.copytree(tiny_corpus, tmp_path / "corpus")
    assert run(home, tmp_path / "corpus", tmp_path / "there").ended == "finished"
    assert scores(tmp_path / "there") == scores(unbroken)
    assert str(tmp_path / "here") not in (tmp_path / "there" / "run.json").read_text()


def test_parallel_processes_give_the_same_results_though_one_is_killed(
    home, tiny_corpus, unbroken, tmp_path, monkeypatch
):
    """Processes forked from a server instead of newly started ones get their work in the same way."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: forked.context)
    shutil.copytree(unbroken, tmp_path / "out")
    for path in (tmp_path / "out" / "jobs").glob("finetune-nsp-*"):
        path.unlink()
    said = []

    def log(words: str) -> None:
        said.append(words)
        if "reviews, seed" in words and not any("restarting" in each for each in said):
            multiprocessing.active_children()[0].kill()

    found = run(home, tiny_corpus, tmp_path / "out", processes=2, log=log)
    assert found.ended == "finished" and found.failures == {} and scores(tmp_path / "out") == scores(unbroken)
    assert any("4 fine-tuning runs, 2 at a time" in words for words in said)
    assert any("a process was killed or lost its device" in words for words in said)


def test_of_those_side_by_side_the_longest_go_first(home, tiny_corpus, unbroken, tmp_path, monkeypatch):
    shutil.copytree(unbroken, tmp_path / "out")
    jobs = tmp_path / "out" / "jobs"
    slow = read_json(jobs / "finetune-nsp-0-at-1-reviews-0.json") | {"seconds": 1e6}
    (jobs / "finetune-nsp-0-at-1-others-0.json").write_text(json.dumps(slow))
    (jobs / "finetune-detecting-0-at-0.5-reviews-0.json").unlink()
    more = '[[tasks]]\nname = "others"\ntask = "classification"\npaths = ["reviews.csv"]\nseeds = [0, 1]\n\n[sentences]'
    file, asked = write_smallest(tmp_path, "[sentences]", more), []

    def run_nothing(self, jobs, *_) -> bool:
        asked.append([job.job.task for job in jobs])
        return False  # stopped

    monkeypatch.setattr(Pool, "run", run_nothing)
    reproduce(file, [tiny_corpus], home / "tasks", tmp_path / "out", processes=2, resume=True, log=quiet)
    assert asked == [["others"] * 7 + ["reviews"]]


def test_what_is_left_out_and_put_back_is_what_it_was(home, tiny_corpus, tmp_path):
    def begun_with(arm: str) -> None:
        file, words = write_smallest(tmp_path, "[[tasks]]", f"{arm}[[tasks]]"), {"stop_after": 1e-6, "resume": True}
        reproduce(file, [tiny_corpus], home / "tasks", tmp_path / "out", log=quiet, **words)

    arm = '[[arms]]\nname = "third"\npreset = "bert-tiny"\nsettings.objective.sentence = "none"\n\n'
    begun_with(arm)
    begun_with("")
    begun_with("")
    with pytest.raises(ValueError, match=r"arms\.third\.settings\.objective\.sentence is sop, not none"):
        begun_with(arm.replace("none", "sop"))
    begun_with(arm)
    assert read_json(tmp_path / "out" / "run.json")["left_out"] == {"arms": [], "tasks": []}


def test_corpora_are_mixed_as_they_were(home, tiny_corpus, tmp_path):
    shutil.copytree(tiny_corpus, tmp_path / "other")

    def mixed(*weights: int) -> None:
        corpora = [
            f"{folder}:{weight}" for folder, weight in zip((tiny_corpus, tmp_path / "other"), weights, strict=True)
        ]
        words = {"stop_after": 1e-6, "resume": True, "log": quiet}
        reproduce(home / "smallest.toml", corpora, home / "tasks", tmp_path / "out", **words)

    mixed(1, 3)
    mixed(2, 6)  # the same
    with pytest.raises(ValueError, match=r"started with corpus weights (2:6|1:3)"):
        mixed(1, 9)


def test_a_task_whose_data_is_gone_keeps_its_scores(home, tiny_corpus, unbroken, tmp_path):
    shutil.copytree(unbroken, tmp_path / "out")
    (tmp_path / "out" / "jobs" / "finetune-nsp-0-at-1-reviews-1.json").unlink()
    more = '[[tasks]]\nname = "others"\ntask = "classification"\npaths = ["others.csv"]\nseeds = [0, 1]\n\n[sentences]'
    file = write_smallest(tmp_path, "[sentences]", more)
    (tmp_path / "tasks").mkdir()
    shutil.copy(home / "tasks" / "reviews.csv", tmp_path / "tasks" / "others.csv")
    found = reproduce(file, [tiny_corpus], tmp_path / "tasks", tmp_path / "out", resume=True, log=quiet)
    assert found.ended == "incomplete" and (found.num_done, found.num_jobs) == (19, 20)
    assert {row["task"] for row in found.results["scores"]} == {"mean", "reviews", "others"}


def test_weights_that_are_not_here_are_named_once(home, tiny_corpus, unbroken, tmp_path):
    out, said = tmp_path / "out", []
    shutil.copytree(unbroken, out)
    for job in (out / "jobs").glob("finetune-nsp-0-at-0.5-*"):
        job.unlink()
    shutil.rmtree(out / "pretrained")
    found = run(home, tiny_corpus, out, log=said.append)
    assert (found.ended, found.num_done, found.failures) == ("incomplete", 10, {})
    (words,) = [each for each in said if "is missing, which" in each]
    assert "copy it from where nsp was trained, or delete" in words and "pretrain-nsp-0.json" in words


def test_minutes_are_measured_once(home, tiny_corpus, tmp_path):
    said = []
    found = run(home, tiny_corpus, tmp_path / "out", minutes_each=0.01, stop_after=1e-6, log=said.append)
    assert found.ended == "stopped" and any("the slowest" in words for words in said)
    decided = read_json(tmp_path / "out" / "run.json")
    assert set(decided["measured"]) == {"nsp", "detecting"} and decided["compile"] == "no"
    rates = {name: arm["step_flops"] / decided["measured"][name] for name, arm in decided["arms"].items()}
    assert decided["flops"] == pytest.approx(0.97 * 0.6 * min(rates.values()), rel=0.01)
    for more in ({}, {"minutes_each": 0.01}):
        run(home, tiny_corpus, tmp_path / "out", stop_after=1e-6, **more)
        assert read_json(tmp_path / "out" / "run.json") == decided
    with pytest.raises(ValueError, match=r"was started with 0\.01 minutes for each arm"):
        run(home, tiny_corpus, tmp_path / "out", minutes_each=0.5)


def test_another_experiment_is_refused_and_more_of_it_is_not(home, tiny_corpus, unbroken, tmp_path):
    shutil.copytree(unbroken, tmp_path / "out")
    for old, new, said in (
        ("model.width = 32", "model.width = 64", "equal.pretraining.model.width is 64, not 32 as"),
        (
            'settings.objective.sentence = "nsp"',
            'settings.objective.sentence = "sop"',
            "arms.nsp.settings.objective.sentence is sop, not nsp",
        ),
        (
            "checkpoints = [0.5, 1.0]",
            "checkpoints = [1.0]",
            r"equal\.checkpoints is \[1\.0\], not \[0\.5, 1\.0\]",
        ),
        ("flops = 1.2e8", "flops = 1.3e8", r"started with 1\.2e\+08 FLOPs, not 1\.3e\+08"),
    ):
        file = write_smallest(tmp_path, old, new)
        with pytest.raises(ValueError, match=said):
            reproduce(file, [tiny_corpus], home / "tasks", tmp_path / "out", resume=True, log=quiet)
    file = write_smallest(tmp_path, "seeds = [0, 1]", "seeds = [0, 1, 2]")
    found = reproduce(file, [tiny_corpus], home / "tasks", tmp_path / "out", resume=True, log=quiet)
    assert found.ended == "finished" and found.num_jobs == 16
    assert scores(unbroken).items() <= scores(tmp_path / "out").items()


def test_some_arms_first_and_the_others_later(home, tiny_corpus, unbroken, tmp_path):
    """In a file of three arms; the claim about the third comes with it, and what is done is not done again."""
    third = '[[arms]]\nname = "mlm"\npreset = "bert-tiny"\nsettings.objective.sentence = "none"\n\n[[tasks]]'
    file, out = write_smallest(tmp_path, "[[tasks]]", third), tmp_path / "out"
    claim = (
        '[[claims]]\nname = "masked"\ndescription = "So is masking."\n[[claims.conditions]]\narm = "mlm"\nminus = "nsp"'
    )
    file.write_text(file.read_text() + f"\n{claim}\nmin = 0.0\n")
    asked = (file, [tiny_corpus], home / "tasks", out)
    found = reproduce(*asked, arms=["detecting", "nsp"], join=True, log=quiet)
    assert found.ended == "finished" and found.num_jobs == 12 and scores(out) == scores(unbroken)
    assert [claim["name"] for claim in found.results["claims"]] == ["better"]
    assert "Arms left out: mlm. Claims that need them are not judged: masked." in (out / "report.html").read_text()
    before = left_by(out)
    found = reproduce(*asked, resume=True, log=quiet)
    assert found.ended == "finished" and found.num_jobs == 17
    assert [claim["name"] for claim in found.results["claims"]] == ["better", "masked"]
    assert {name: each for name, each in left_by(out).items() if name in before} == before
    for arms, said in (
        (["nsp", "mml"], "no arm 'mml' in smallest: use nsp, detecting, mlm"),
        (["nsp"], "at least two"),
        ([], "at least two"),
    ):
        with pytest.raises(ValueError, match=said):
            reproduce(*asked, arms=arms, resume=True, log=quiet)


def test_other_flops_than_those_of_the_file(home, tiny_corpus, tmp_path):
    found = run(home, tiny_corpus, tmp_path / "out", flops=2.4e8, stop_after=1e-6)
    assert found.results["flops"] == 2.4e8
    arms = read_json(tmp_path / "out" / "run.json")["arms"]
    assert all(arm["steps"] == round(2.4e8 / arm["step_flops"]) > 2 for arm in arms.values())
    assert run(home, tiny_corpus, tmp_path / "out", stop_after=1e-6).results["flops"] == 2.4e8  # as it was started
    with pytest.raises(ValueError, match=r"started with 2.4e\+08 FLOPs, not 1.2e\+08: give 2.4e\+08 as flops=, or"):
        run(home, tiny_corpus, tmp_path / "out", flops=1.2e8, stop_after=1e-6)
    with pytest.raises(ValueError, match="give one of them"):
        run(home, tiny_corpus, tmp_path / "other", flops=2.4e8, minutes_each=1.0)


def test_more_seeds_of_pretraining(home, tiny_corpus, unbroken, tmp_path):
    """The results of the first seed are kept, and verdicts are then over all seeds."""
    out = tmp_path / "out"
    shutil.copytree(unbroken, out)
    found = run(home, tiny_corpus, out, seeds=2)
    assert found.ended == "finished" and found.num_jobs == 1 + 2 * 11 and found.results["seeds"] == [0, 1]
    assert scores(unbroken).items() < scores(out).items()
    one, two = (read_json(out / "jobs" / f"pretrain-nsp-{seed}.json")["losses"]["1"] for seed in (0, 1))
    assert one["mlm"] != two["mlm"]
    points = [row for row in found.results["scores"] if row["task"] == "mean"]
    assert points and all(row["of"] == 2 for row in points)
    assert "t intervals over 2 pre-training seeds" in (out / "report.html").read_text()
    assert run(home, tiny_corpus, out).num_jobs == 12  # and those of the file alone


def test_other_settings_than_those_of_the_file(home, tiny_corpus, unbroken, tmp_path):
    found = run(home, tiny_corpus, tmp_path / "out", overrides={"optimizer.lr": "2e-3"}, stop_after=1e-6)
    assert found.results["about"] == "Overrides for every arm: optimizer.lr=2e-3."
    assert run(home, tiny_corpus, tmp_path / "out", stop_after=1e-6).results["about"] == found.results["about"]
    with pytest.raises(ValueError, match=r"equal.pretraining.optimizer.lr is 0.001, not 2e-3"):
        run(home, tiny_corpus, tmp_path / "out", overrides={"optimizer.lr": 0.001}, stop_after=1e-6)
    for overrides, said in (
        ({"objective.sentence": "sop"}, "objective.sentence is set by arm nsp and cannot be overridden"),
        ({"optimizer.rate": "1"}, "optimizer.rate"),
        ({"schedule.steps": "5"}, "schedule.steps"),
    ):
        with pytest.raises(ValueError, match=said):
            run(home, tiny_corpus, tmp_path / "other", overrides=overrides)


def test_an_arm_is_done_before_the_next_begins(unbroken):
    """So that what a lent machine finished needs no weights on the next one."""
    written = sorted((unbroken / "jobs").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    tunings = [f"finetune-nsp-0-at-{share}-reviews-{seed}" for share in ("1", "0.5") for seed in (0, 1)]
    assert [file.stem for file in written][:8] == [
        "shared-words",
        "pretrain-nsp-0",
        "sentence-head-nsp-0",
        *tunings,
        "pretrain-detecting-0",
    ]


def test_other_data_is_refused_before_anything_runs(home, tiny_corpus, unbroken, tmp_path):
    """Otherwise scores on two sets of examples would be in one table."""
    shutil.copytree(unbroken, tmp_path / "out")
    for job in (tmp_path / "out" / "jobs").glob("finetune-nsp-0-at-1-*"):
        job.unlink()
    write_reviews(tmp_path / "tasks")
    file = tmp_path / "tasks" / "reviews.csv"
    asked = {"resume": True, "log": quiet}
    words = (home / "smallest.toml", [tiny_corpus], tmp_path / "tasks", tmp_path / "out")
    file.write_text(file.read_text().replace("number 3,good", "number 3,bad"))
    with pytest.raises(ValueError, match=r"the data of reviews is not what .* was started with: restore it"):
        reproduce(*words, **asked)
    write_reviews(tmp_path / "tasks")  # the same in another place
    assert reproduce(*words, **asked).ended == "finished" and scores(tmp_path / "out") == scores(unbroken)


def test_arms_done_elsewhere_need_their_weights_no_more(home, tiny_corpus, unbroken, tmp_path):
    """Jobs finished on one machine count on another that runs new arms and has only the small files."""
    out = tmp_path / "elsewhere"
    shutil.copytree(unbroken / "jobs", out / "jobs")
    shutil.copy(unbroken / "run.json", out)
    before = left_by(out)
    more = '[[arms]]\nname = "mlm"\npreset = "bert-tiny"\nsettings.objective.sentence = "none"\n\n[[tasks]]'
    write_smallest(tmp_path, "[[tasks]]", more)
    found = reproduce(tmp_path / "smallest.toml", [tiny_corpus], home / "tasks", out, resume=True, log=quiet)
    assert found.ended == "finished" and found.failures == {}
    after = left_by(out)
    assert {name: after[name] for name in before} == before and len(after) == len(before) + 5
    assert [path.name for path in (out / "pretrained").iterdir()] == ["mlm-0"]
    assert all(arm in (out / "RESULTS-smallest.md").read_text() for arm in ("nsp", "detecting", "mlm"))


def test_a_failed_run_does_not_end_the_others(home, tiny_corpus, tmp_path, monkeypatch):
    def fail(preset, *rest, **more):
        if preset == "bert-tiny":
            raise ValueError("no luck")
        return pretrain(preset, *rest, **more)

    pretrain = running.pretrain
    monkeypatch.setattr(running, "pretrain", fail)
    said = []
    found = run(home, tiny_corpus, tmp_path / "out", log=said.append)
    assert found.ended == "incomplete" and found.failures == {"pretrain-nsp-0": "no luck"}
    assert found.num_done == 6 and any(
        "pre-training nsp failed: no luck; continuing with the others" in each for each in said
    )
    assert "fine-tuning nsp at 1: 2 jobs" in (tmp_path / "out" / "report.html").read_text()


# ---- as a command


def test_the_command(hornbook, home, tiny_corpus, unbroken):
    asked = (home / "smallest.toml", "--corpus", tiny_corpus, "--data", home / "tasks", "--out", unbroken)
    status, out, _ = hornbook("reproduce", *asked, "--resume", "--json")
    answer = json.loads(out.splitlines()[-1])
    assert status == 0 and answer["ended"] == "finished" and answer["verdicts"].keys() == {"better"}
    _, out, error = hornbook("reproduce", *asked, "--resume")
    reason = r"\n(holds|not decided|does not .*): Detecting is better.\n  its mean score is higher: .*must be above 0"
    assert (
        re.search(reason, out) and re.search(r"arm +mean +reviews, accuracy", out) and "step " not in out + error[-80:]
    )
    assert "note: models learn little in so few steps: nsp 4, detecting 2; raise" in error
    status, _, error = hornbook("reproduce", *asked)
    assert status == 2 and "add --resume" in error


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"--data": "nowhere"}, "nowhere is not a folder: give the folder"),
        ({"--data": "."}, "has data for none of the tasks: put it at reviews"),
        ({"--stop-after": "0"}, "--stop-after must be above 0"),
        ({"--minutes-each": "-1"}, "--minutes-each must be above 0"),
        ({"--flops": "0"}, "--flops must be above 0"),
        ({"--arms": "nsp,electra"}, "no arm 'electra' in smallest: use nsp, detecting"),
        ({"--processes": "0"}, "--processes must be at least 1"),
        ({"--seeds": "0"}, "--seeds must be at least 1"),
        ({"--corpus": "nowhere"}, "nowhere"),
    ],
)
def test_what_is_wrong_is_refused_in_a_sentence(hornbook, home, tiny_corpus, tmp_path, monkeypatch, changed, said):
    monkeypatch.chdir(tmp_path)
    asked = {"--corpus": tiny_corpus, "--data": home / "tasks", "--out": tmp_path / "out"} | changed
    found = hornbook("reproduce", home / "smallest.toml", *(word for pair in asked.items() for word in pair))
    assert found.status == 2 and said in found.error and found.error.count("\n") == 1
    assert not (tmp_path / "out" / "jobs").exists()


def test_missing_data_is_named_and_the_rest_runs(home, tiny_corpus, tmp_path):
    more = '[[tasks]]\nname = "cola"\npaths = ["glue/CoLA"]\n\n[sentences]'
    file, said = write_smallest(tmp_path, "[sentences]", more), []
    found = reproduce(file, [tiny_corpus], home / "tasks", tmp_path / "out", stop_after=1e-6, log=said.append)
    assert any("no data for cola (looked for" in words and "it is left out" in words for words in said)
    assert found.num_jobs == 12 and not found.results["tasks"]["cola"]["has_data"]
    assert "cola is left out" in (tmp_path / "out" / "report.html").read_text()
