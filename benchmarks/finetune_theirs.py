"""The other side of `finetune.py`: the recipes of `transformers`' own examples.

Its classes, tokenizer and collators (padded to the longest of each batch), AdamW (fused) without decay on biases and
norms, a linear schedule with warm-up, clipping at 1, bfloat16 autocast on CUDA and float32 on a CPU. `Trainer` does it
where `accelerate` is installed, which it needs; otherwise a plain loop that does the same steps, without Trainer's
bookkeeping around them.
"""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from finetune_data import Recipe
from finetune_rows import KINDS, answers_of, tags_of
from torch import nn
from transformers.utils import is_accelerate_available

from hornbook.tasks.datasets import find_task
from hornbook.tasks.evaluation import Evaluation, rescored
from hornbook.tasks.records import DataSet
from hornbook.tasks.spec import head_config_for, make_task

EVALUATION_BATCH = 64

transformers.utils.logging.set_verbosity_error()
with contextlib.suppress(AttributeError):
    transformers.utils.logging.disable_progress_bar()


class Rows(torch.utils.data.Dataset):
    """Encoded examples; each is copied, because collators remove the labels from their input."""

    def __init__(self, rows: list[dict]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict:
        return dict(self.rows[place])


@dataclass
class Prepared:
    """Everything before the first step."""

    model: nn.Module
    collate: Callable
    train: list[dict]
    dev: list[dict]
    places: list[dict]  # what decoding needs of each row of dev


@dataclass
class Timed:
    seconds: float
    steps: int
    how: str


def has_trainer() -> bool:
    try:
        return bool(is_accelerate_available())
    except Exception:
        return False


def as_torch_starts(threads: int) -> None:
    """Resets what our side sets in the process: deterministic algorithms on a CPU, which they do not use."""
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_float32_matmul_precision("highest")
    torch.set_num_threads(threads)


def fine_tune(recipe: Recipe, data: DataSet, use: str = "auto") -> dict:
    """Trains on `train` and scores `dev` with the task's official scorer."""
    as_torch_starts(recipe.threads)
    began = time.perf_counter()
    prepared = prepare(recipe, data)
    timed = train(prepared, recipe, use)
    whole = time.perf_counter() - began
    return {
        "how": timed.how,
        "scores": scores(prepared, recipe, data),
        "training_seconds": timed.seconds,
        "startup_seconds": whole - timed.seconds,
        "steps": timed.steps,
        "sequences": len(prepared.train),
        "examples_per_second": len(data.splits["train"]) * recipe.epochs / timed.seconds,
    }


def prepare(recipe: Recipe, data: DataSet) -> Prepared:
    transformers.set_seed(recipe.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(recipe.model)
    encode, model_class, collator = KINDS[type(data.splits["dev"][0])]
    named: dict = {}
    if data.kind == "regression":
        named = {"num_labels": 1}
    elif data.labels:
        names = dict(enumerate(data.labels))
        named = {"num_labels": len(names), "id2label": names, "label2id": {name: i for i, name in names.items()}}
    model = model_class.from_pretrained(recipe.model, **named)
    train_rows, _ = encode(data.splits["train"], tokenizer, data.labels, recipe.max_length)
    dev_rows, places = encode(data.splits["dev"], tokenizer, data.labels, recipe.max_length)
    return Prepared(model.to(recipe.device), collator(tokenizer), train_rows, dev_rows, places)


# --- Training -------------------------------------------------------------------------------------------------------


def train(prepared: Prepared, recipe: Recipe, use: str = "auto") -> Timed:
    if use == "loop" or (use == "auto" and not has_trainer()):
        return train_in_loop(prepared, recipe)
    try:
        return train_with_trainer(prepared, recipe)
    except ImportError:  # accelerate is there, but too old for this Trainer
        if use == "trainer":
            raise
        return train_in_loop(prepared, recipe)


def num_warmup_steps(recipe: Recipe, num_steps: int) -> int:
    return math.ceil(recipe.warmup * num_steps)


def autocast(recipe: Recipe) -> contextlib.AbstractContextManager:
    return torch.autocast("cuda", torch.bfloat16) if recipe.device == "cuda" else contextlib.nullcontext()


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def loader_for(prepared: Prepared, recipe: Recipe) -> torch.utils.data.DataLoader:
    """As in Trainer: shuffled by the seed, collated in the training process, in pinned memory."""
    return torch.utils.data.DataLoader(
        Rows(prepared.train),
        recipe.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(recipe.seed),
        collate_fn=prepared.collate,
        pin_memory=recipe.device == "cuda",
    )


def train_in_loop(
    prepared: Prepared, recipe: Recipe, on_step: Callable[[int], None] | None = None, compiled: bool = False
) -> Timed:
    """`on_step` is called after each step has been launched on the device."""
    model = prepared.model.train()
    forward = torch.compile(model) if compiled else model
    loader = loader_for(prepared, recipe)
    num_steps = len(loader) * recipe.epochs
    decays = [p for p in model.parameters() if p.ndim >= 2]
    stays = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": recipe.weight_decay}, {"params": stays, "weight_decay": 0.0}],
        lr=recipe.lr,
        betas=(0.9, 0.999),
        eps=1e-8,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, num_warmup_steps(recipe, num_steps), num_steps)
    wait_for(recipe.device)
    began, step = time.perf_counter(), 0
    for _ in range(recipe.epochs):
        for batch in loader:
            on_device = {name: value.to(recipe.device, non_blocking=True) for name, value in batch.items()}
            with autocast(recipe):
                loss = forward(**on_device).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if on_step:
                on_step(step)
    wait_for(recipe.device)
    return Timed(time.perf_counter() - began, step, "plain loop" + (", compiled" if compiled else ""))


def train_with_trainer(prepared: Prepared, recipe: Recipe) -> Timed:
    class Stopwatch(transformers.TrainerCallback):
        """Excludes creating optimizer and loaders before the first step."""

        began = ended = 0.0

        def on_train_begin(self, *_, **__) -> None:
            wait_for(recipe.device)
            self.began = time.perf_counter()

        def on_train_end(self, *_, **__) -> None:
            wait_for(recipe.device)
            self.ended = time.perf_counter()

    num_steps = math.ceil(len(prepared.train) / recipe.batch_size) * recipe.epochs
    on_progress = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=recipe.epochs,
            per_device_train_batch_size=recipe.batch_size,
            learning_rate=recipe.lr,
            weight_decay=recipe.weight_decay,
            max_grad_norm=recipe.clip,
            lr_scheduler_type="linear",
            warmup_steps=num_warmup_steps(recipe, num_steps),
            seed=recipe.seed,
            bf16=recipe.device == "cuda",
            use_cpu=recipe.device == "cpu",
            save_strategy="no",
            eval_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = transformers.Trainer(
            prepared.model,
            settings,
            data_collator=prepared.collate,
            train_dataset=Rows(prepared.train),
            callbacks=[on_progress],
        )
        trainer.train()
    return Timed(on_progress.ended - on_progress.began, trainer.state.global_step, "Trainer")


# --- Scoring --------------------------------------------------------------------------------------------------------


def scores(prepared: Prepared, recipe: Recipe, data: DataSet) -> dict[str, float]:
    """Scores with the same scorer as ours; the no-answer threshold is the best one on dev, as for ours."""
    task, dev = make_task(find_task(recipe.task), data, head_config_for(data)).task, data.splits["dev"]
    found = logits(prepared, recipe)
    if task.head_config.output_type.of_sequences:
        predictions = task.decode(found, None, dev)
    elif task.unit == "word":
        predictions = tags_of(found, prepared.places, dev, data.labels)
    else:
        predictions = answers_of(found, prepared.places, dev)
    evaluation = Evaluation(predictions, task.scorer(dev, predictions)())
    return rescored(task.with_best_threshold(dev, predictions), dev, evaluation).scores


@torch.no_grad()
def logits(prepared: Prepared, recipe: Recipe) -> list[np.ndarray]:
    """The outputs for each row of dev in order; for tokens and spans, as many as the row has tokens."""
    model, rows = prepared.model.eval(), prepared.dev
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]["input_ids"]))
    found: list = [None] * len(rows)
    for first in range(0, len(order), EVALUATION_BATCH):
        places = order[first : first + EVALUATION_BATCH]
        batch = prepared.collate([dict(rows[place]) for place in places])
        with autocast(recipe):
            answer = model(**{name: value.to(recipe.device) for name, value in batch.items()})
        is_span = "start_logits" in answer
        values = torch.stack([answer.start_logits, answer.end_logits], -1) if is_span else answer.logits
        for place, value in zip(places, values.float().cpu().numpy(), strict=True):
            found[place] = value[: len(rows[place]["input_ids"])] if value.ndim == 2 else value
    return found
