"""The cost of a task distillation step, compared with its two parts: a plain fine-tuning step of the student, and a
forward pass of the teacher over the same texts.

    python benchmarks/distillation_speed.py --data GLUE/MRPC --vocabulary DIR [--teachers bert-base,6x384] [--rounds 5]

Batches of 32 pairs of MRPC with their real lengths, random weights, a student with half the teacher's layers. Steps run
as in `hornbook finetune` and `distill` (on a GPU captured, in bfloat16); so does the teacher alone. Sides are timed in
alternation; the result is the median over rounds of the mean step of a round. The target is 1.6 x the sum of the two
parts; in the last column the teacher's pass is subtracted first, and the rest is compared with the student's step
alone.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from hornbook.batch import Batch
from hornbook.config import with_overrides
from hornbook.models.registry import MODELS
from hornbook.objectives.distillation.matching import PUBLISHED
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.job import TaskBatches, with_teacher
from hornbook.runs.finetuning.layers import with_head
from hornbook.runs.pretraining.presets import PRESETS, preset
from hornbook.tasks.datasets import find_task
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.reading.read import read
from hornbook.tasks.spec import head_config_for, make_task
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.cuda_graphs import bucket_for, padded_to_bucket
from hornbook.train.objective import StepInputs, TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch
from hornbook.train.settings import OptimizerSettings, RuntimeSettings
from hornbook.train.step import Stepper

TASK, BATCH_SIZE, LONGEST, RATE = "mrpc", 32, 128, 2e-5
PARTS = ("fine-tuning the student", "a pass of the teacher")
RECIPES = {
    "scores and labels (DistilBERT)": PUBLISHED["distilbert"].task[0],
    "embeddings, hidden states, attention (TinyBERT, first stage)": PUBLISHED["tinybert"].task[0],
    "scores (TinyBERT, second stage)": PUBLISHED["tinybert"].task[1],
    "attention and value relations of the last layer (as MiniLM on plain text)": PUBLISHED["minilm"].general,
}


def shape(name: str, vocab_size: int):
    """A preset, or LAYERSxWIDTH of a BERT."""
    if name in PRESETS:
        return with_overrides(preset(name).model, {"vocab_size": vocab_size})
    num_layers, width = map(int, name.split("x"))
    sizes = {"num_layers": num_layers, "width": width, "num_heads": width // 32, "inner_width": 4 * width}
    return with_overrides(preset("bert-base").model, sizes | {"vocab_size": vocab_size})


def stepping(model, objective, runtime: Runtime, batches: list[Batch]) -> Callable[[], None]:
    """One round: one step on each batch."""
    stepper = Stepper(
        TrainingModule(model, objective), make_optimizer(model, OptimizerSettings()), runtime, 0, 1.0, 1 << 17
    )
    number = 0

    def round_() -> None:
        nonlocal number
        for batch in batches:
            stepper.train_step(batch, number, RATE)
            number += 1

    return round_


def passing(model, runtime: Runtime, batches: list[Batch]) -> Callable[[], None]:
    """One round: one pass over each batch, without gradients; on CUDA each is a separate graph."""

    def one(batch: Batch) -> None:
        with torch.no_grad(), runtime.autocast():
            model.outputs_of(model(batch), batch)

    model.eval()
    if runtime.device.type != "cuda":
        return lambda: [one(batch) for batch in batches]
    captured, pool = [], torch.cuda.graph_pool_handle()
    for step_inputs in (StepInputs(batch) for batch in batches):
        batch = padded_to_bucket(
            step_inputs, bucket_for(step_inputs, model.config.max_positions)
        ).batch  # as a captured step reads it
        one(batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            one(batch)
        captured.append((graph, batch))  # a graph reads the memory of its batch, which must not be reused

    def round_() -> None:
        for graph, _ in captured:
            graph.replay()

    return round_


def seconds(round_: Callable[[], None], device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    round_()
    wait()
    return time.perf_counter() - began


def measured(name: str, args: argparse.Namespace, runtime: Runtime) -> dict[str, float]:
    """Milliseconds per step of each side."""
    data, tokenizer = read(TASK, args.data), Tokenizer.load(args.vocabulary)
    head_config = head_config_for(data)
    task = make_task(find_task(TASK), data, head_config).task
    made = TaskBatches(task.encode(data.splits["train"], tokenizer, LONGEST), BATCH_SIZE, seed=0)
    batches = [made(number).to(runtime.device) for number in range(args.batches)]
    config = shape(name, tokenizer.vocab_size)
    half = with_overrides(config, {"num_layers": config.num_layers // 2})

    def fresh(config, seed: int):
        encoder = MODELS["bert"](config, ("pooler",))
        encoder.initialize(torch.Generator().manual_seed(seed))
        return with_head(encoder, head_config, seed)[0].to(runtime.device)

    teacher = fresh(config, 0)
    sides = {}
    student = fresh(half, 1)
    sides[PARTS[0]] = stepping(student, TaskObjective(head_config), runtime, batches)
    sides[PARTS[1]] = passing(teacher, runtime, batches)
    opened = Teacher(name, Path(name), teacher, tokenizer, "")
    for words, recipe in RECIPES.items():
        pair, objective = with_teacher(fresh(half, 1), TaskObjective(head_config), recipe, opened, 0, None)
        sides[words] = stepping(pair, objective, runtime, batches)
    for round_ in sides.values():  # graphs are captured in the first round
        round_()
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, round_ in sides.items():
            found[side].append(1000 * seconds(round_, runtime.device) / len(batches))
    return {side: median(each) for side, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder of MRPC")
    parser.add_argument("--vocabulary", required=True, help="the folder of a tokenizer")
    parser.add_argument("--teachers", default="bert-base,6x384", help="presets, or layers x width")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    runtime = choose_runtime(RuntimeSettings(), 0.0)
    configure_torch(runtime)
    print(f"{runtime.description}; torch {torch.__version__}", flush=True)
    for name in args.teachers.split(","):
        found = measured(name, args, runtime)
        print(json.dumps({"teacher": name} | found), flush=True)
        together = sum(found[part] for part in PARTS)
        print(
            f"\n| teacher {name}, student half the layers | ms per step | of both parts | without the teacher's pass |"
        )
        print("|---|---|---|---|")
        for side, each in found.items():
            shares = (each / together, (each - found[PARTS[1]]) / found[PARTS[0]])
            print(
                f"| {side} | {each:.3f} | " + " | ".join("" if side in PARTS else f"{x:.2f} x" for x in shares) + " |"
            )


if __name__ == "__main__":
    main()
