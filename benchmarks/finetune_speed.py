"""The two speed comparisons of `finetune.py`: on a GPU, and on the cores of a CPU."""

import argparse
import dataclasses
import gc
import json
import tempfile
import time
from pathlib import Path
from statistics import fmean

import finetune_ours
import finetune_theirs
import torch
import transformers
from finetune_data import Recipe, chosen_data, recipe_for

from hornbook.config import with_overrides
from hornbook.files import num_cores, write_json
from hornbook.interop.folder import save_model
from hornbook.models.registry import MODELS
from hornbook.runs.pretraining.presets import preset
from hornbook.tasks.reading.read import read
from hornbook.tasks.records import DataSet
from hornbook.text.tokenizer import Tokenizer

TASK = "mrpc"


def versions(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {num_cores()} cores"
    return {"device": name, "torch": torch.__version__, "transformers": transformers.__version__}


def mrpc_folder(given: Path) -> Path:
    return given / "MRPC" if (given / "MRPC").is_dir() else given


def random_model(folder: Path, name: str, vocabulary: str) -> None:
    """A model of a published size with random weights, in a folder that both sides open."""
    tokenizer = Tokenizer.load(vocabulary)
    config = with_overrides(preset(name).model, {"vocab_size": tokenizer.vocab_size})
    model = MODELS["bert"](config, ("pooler",))
    model.initialize(torch.Generator().manual_seed(0))
    tokenizer.save(folder, config.max_positions)
    save_model(folder, model)


def num_seen(num_units: int, batch_size: int, steps: int) -> int:
    """The number of examples in the first `steps` steps; the last step of each epoch is smaller."""
    per_epoch = -(-num_units // batch_size)
    epochs, within = divmod(steps, per_epoch)
    return epochs * num_units + within * batch_size


def emptied(device: str) -> None:
    gc.collect()
    torch.compiler.reset()
    if device == "cuda":
        torch.cuda.empty_cache()


# --- On a GPU -------------------------------------------------------------------------------------------------------


def on_gpu(args: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print("there is no CUDA device: these are numbers of the CPU in float32, good only for trying the benchmark")
    data_folder = mrpc_folder(args.data)
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held) / "model"
        random_model(folder, args.preset, args.vocabulary)
        recipe = recipe_for(str(folder), TASK, 0, args.threads or num_cores(), device, epochs=args.epochs)
        (torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)).sum().item()  # CUDA is up for both
        wholes = _whole_runs(recipe, data_folder, Path(held), args)
        steady = _steady(recipe, data_folder, Path(held), args)
    answer = versions(device) | {"preset": args.preset, "recipe": dataclasses.asdict(recipe)}
    answer |= {"whole_runs": wholes, "steady": steady}
    _print_gpu(answer, recipe)
    if args.out:
        write_json(args.out, answer)


def _whole_runs(recipe: Recipe, data_folder: Path, held: Path, args: argparse.Namespace) -> list[dict]:
    """Sides in alternation, ours first: what the process has loaded by then benefits the others."""
    rows = []
    for turn in range(args.repeats):
        for side in ("ours", "theirs"):
            emptied(recipe.device)
            began = time.perf_counter()
            if side == "ours":
                clock, how = finetune_ours.fine_tune_from_disk(recipe, data_folder, held / f"whole-{turn}")
                seconds = clock.seconds_trained
            else:
                finetune_theirs.as_torch_starts(recipe.threads)
                prepared = finetune_theirs.prepare(recipe, read(TASK, data_folder))
                how = finetune_theirs.train(prepared, recipe, args.trainer).how
                finetune_theirs.wait_for(recipe.device)
                seconds = time.perf_counter() - began
                del prepared
            rows.append({"turn": turn, "side": side, "seconds": seconds, "how": how})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def _steady(recipe: Recipe, data_folder: Path, held: Path, args: argparse.Namespace) -> list[dict]:
    """Examples per second after one epoch of warmup, in which everything is compiled and captured."""
    longer = dataclasses.replace(recipe, epochs=1 + args.steady_epochs)
    data = read(TASK, data_folder)
    num_units = len(data.splits["train"])
    warm_steps = -(-num_units // recipe.batch_size)
    rows = []
    for side in args.sides.split(","):
        emptied(recipe.device)
        if side == "ours":
            row = _steady_ours(longer, data_folder, held / "steady", warm_steps, num_units)
        else:
            try:
                row = _steady_theirs(longer, data, warm_steps, compiled=side == "compiled")
            except Exception as error:
                if side != "compiled":
                    raise
                print(f"their compiled model does not run here: {str(error).splitlines()[0]}")
                continue
        rows.append({"side": side} | row)
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _steady_ours(recipe: Recipe, data_folder: Path, out: Path, warm_steps: int, num_units: int) -> dict:
    clock, how = finetune_ours.fine_tune_from_disk(recipe, data_folder, out)
    (first, warm), (last, end) = clock.seconds_at(warm_steps), clock.seconds_at(clock.num_steps)
    num = num_seen(num_units, recipe.batch_size, last) - num_seen(num_units, recipe.batch_size, first)
    return {"examples_per_second": num / (end - warm), "examples": num, "warm_up_seconds": warm, "how": how}


def _steady_theirs(recipe: Recipe, data: DataSet, warm_steps: int, compiled: bool) -> dict:
    finetune_theirs.as_torch_starts(recipe.threads)
    began = time.perf_counter()
    prepared = finetune_theirs.prepare(recipe, data)
    times: dict[int, float] = {}

    def mark(step: int) -> None:
        if step in (warm_steps, warm_steps * recipe.epochs):
            finetune_theirs.wait_for(recipe.device)
            times[step] = time.perf_counter()

    how = finetune_theirs.train_in_loop(prepared, recipe, mark, compiled).how
    warm, end = times.values()
    num = len(prepared.train) * (recipe.epochs - 1)
    return {
        "examples_per_second": num / (end - warm),
        "examples": num,
        "warm_up_seconds": warm - began,
        "how": how,
        "collating_seconds_an_epoch": _collating(prepared, recipe),
    }


def _collating(prepared: finetune_theirs.Prepared, recipe: Recipe) -> float:
    """The fraction of an epoch spent in collating, which Trainer does in the training process."""
    began = time.perf_counter()
    for _ in finetune_theirs.loader_for(prepared, recipe):
        pass
    return time.perf_counter() - began


def _print_gpu(answer: dict, recipe: Recipe) -> None:
    print(f"\n{answer['device']}; torch {answer['torch']}, transformers {answer['transformers']}")
    print(f"{answer['preset']} on MRPC, batch {recipe.batch_size}; warm-up (one epoch and start-up) apart\n")
    print("| side | examples/s | ours is | warm-up s | how |\n|---|---|---|---|---|")
    rates = {row["side"]: row["examples_per_second"] for row in answer["steady"]}
    for row in answer["steady"]:
        ratio = "" if row["side"] == "ours" or "ours" not in rates else f"{rates['ours'] / rates[row['side']]:.2f} x"
        print(f"| {row['side']} | {rates[row['side']]:,.0f} | {ratio} | {row['warm_up_seconds']:.1f} | {row['how']} |")
    print(f"\nThe whole run of {recipe.epochs} epochs, start-up and compilation included\n")
    print("| turn | ours s | theirs s | ours is | theirs |\n|---|---|---|---|---|")
    turns: dict[int, dict[str, dict]] = {}
    for row in answer["whole_runs"]:
        turns.setdefault(row["turn"], {})[row["side"]] = row
    for turn, both in turns.items():
        ours, theirs = both["ours"]["seconds"], both["theirs"]["seconds"]
        print(f"| {turn + 1} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} x | {both['theirs']['how']} |")


# --- On a CPU -------------------------------------------------------------------------------------------------------


def on_cpu(args: argparse.Namespace) -> None:
    threads = args.threads or num_cores()
    recipe = recipe_for(str(args.model), TASK, 0, threads, "cpu", epochs=args.epochs)
    data = chosen_data(mrpc_folder(args.data), TASK, args.examples, 32)
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    how = {}
    for turn in range(args.repeats):
        for side in rates:
            if side == "ours":
                with tempfile.TemporaryDirectory() as out:
                    found = finetune_ours.fine_tune(recipe, data, Path(out) / "run")
            else:
                found = finetune_theirs.fine_tune(recipe, data, args.trainer)
            rates[side].append(found["examples_per_second"])
            how[side] = found["how"]
            print(f"{side}, turn {turn + 1}: {rates[side][-1]:.1f} examples/s ({found['how']})", flush=True)
    best = {side: max(each) for side, each in rates.items()}
    mean = {side: fmean(each) for side, each in rates.items()}
    print(f"\nMRPC, {len(data.splits['train'])} examples, batch {recipe.batch_size}, float32, {threads} threads\n")
    print("| side | best examples/s | all | how |\n|---|---|---|---|")
    for side, each in rates.items():
        print(f"| {side} | {best[side]:.1f} | {', '.join(f'{rate:.1f}' for rate in each)} | {how[side]} |")
    print(f"\nours is {best['ours'] / best['theirs']:.2f} x (of the means: {mean['ours'] / mean['theirs']:.2f} x)")
    if args.out:
        write_json(args.out, versions("cpu") | {"recipe": dataclasses.asdict(recipe), "rates": rates, "how": how})
