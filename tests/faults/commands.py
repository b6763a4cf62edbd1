"""The one table of this suite: every command that writes, as small as it gets, and what it is made from."""

import csv
import json
import random as chance
from pathlib import Path
from typing import NamedTuple

import torch
from tiny import tiny_text

TINY = (
    *("model.num_layers=1", "model.width=16", "model.num_heads=2", "model.inner_width=32"),
    *("data.short_length=16", "data.length=16", "validation.tokens=64", "validation.every_steps=2"),
    *("checkpoint.every_steps=2", "runtime.threads=1"),
)
ON_A_TASK = ("checkpoint.every_steps=2", "validation.every_steps=2", "runtime.threads=1")
LABELLED = "--task classification --data {given}/texts.csv"
QUESTION = """
example = "{text} is"
gold = "label"
metrics = ["accuracy"]
[choices]
labels = {light = "light", dark = "dark"}
"""


class Command(NamedTuple):
    """`words` are those of the command line: `{given}` is the folder of materials, `{work}` that of one trial, which
    starts with a copy of what `copied` names and into which the command writes."""

    name: str
    words: str
    settings: tuple[str, ...] = ()
    resume: str = ""  # what is added to resume; nothing: the same command is run again
    copied: tuple[str, ...] = ()
    is_long: bool = True  # whether a person would stop it: then it stops within seconds and resumes
    repeats: bool = False  # the same command on a finished folder succeeds, and changes nothing

    def line(self, given: Path, work: Path) -> list[str]:
        words = self.words.format(given=given, work=work).split()
        return [*words, *(word for each in self.settings for word in ("--set", each))]


COMMANDS = (
    Command("tokenizer train", "tokenizer train {given}/texts.txt --out {work}/out --vocab-size 150", is_long=False),
    Command(
        "corpus build",
        "corpus build {given}/texts.txt --tokenizer {given}/tokenizer --out {work}/out --workers 0",
        repeats=True,
    ),
    Command(
        "pretrain",
        "pretrain bert-tiny --corpus {work}/corpus --out {work}/out --steps 5 --batch-tokens 64",
        TINY,
        "--resume",
        ("corpus",),
    ),
    Command(
        "pretrain electra",
        "pretrain electra-small --corpus {work}/corpus --out {work}/out --steps 3 --batch-tokens 64",
        (*TINY, "model.embedding_width=8", "objective.generator_size=0.5"),
        "--resume",
        ("corpus",),
    ),
    Command(
        "finetune", f"finetune {{given}}/run {LABELLED} --out {{work}}/out --epochs 2 --lr 1e-3", ON_A_TASK, "--resume"
    ),
    Command(
        "finetune --seeds",
        f"finetune {{given}}/run {LABELLED} --out {{work}}/out --epochs 1 --seeds 2",
        ("runtime.threads=1",),
        "--resume",
    ),
    Command(
        "distill a corpus",
        "distill {given}/run --student distilbert --corpus {work}/corpus --out {work}/out --steps 4 --batch-tokens 64",
        ("model.num_layers=1", *TINY[4:]),
        "--resume",
        ("corpus",),
    ),
    Command(
        "distill a task",
        f"distill {{given}}/reviews --student {{given}}/run {LABELLED} --out {{work}}/out --epochs 1 --augment 1 "
        "--cache-teacher logits",
        (*ON_A_TASK, "stages.1.epochs=1"),
        "--resume",
    ),
    Command(
        "prompt",
        "prompt {given}/gpt --task {given}/task.toml --data {given}/tables --out {work}/out --shots 0,1 --seeds 1",
        resume="--resume",
    ),
    Command("probe", f"probe {{given}}/run {LABELLED} --out {{work}}/out", is_long=False, repeats=True),
    Command("baseline", f"baseline tfidf {LABELLED} --out {{work}}/out", is_long=False, repeats=True),
    Command(
        "label-curve",
        f"label-curve {{given}}/run {LABELLED} --out {{work}}/out --sizes 8 --seeds 1 --methods finetune,tfidf",
        repeats=True,
    ),
    Command(
        "export",
        "export {given}/reviews --format onnx --out {work}/out --rounds 1 --length 8",
        is_long=False,
    ),
    Command(
        "predict --out",
        "predict {given}/reviews --file {given}/texts.csv --out {work}/out.csv",
        is_long=False,
        repeats=True,
    ),
    Command("features", "features {given}/run {given}/texts.csv --out {work}/out.npy", is_long=False, repeats=True),
)


def make_materials(folder: Path) -> Path:
    """What the commands are given: texts, a table, a tokenizer, a corpus, an encoder, a GPT, and a run on the table."""
    from hornbook.data.build import build_corpus
    from hornbook.interop.folder import save_model
    from hornbook.models.bert import Bert, BertConfig
    from hornbook.models.gpt import Gpt2Config
    from hornbook.models.registry import model_class_of
    from hornbook.runs.finetuning.finetune import finetune
    from hornbook.text.training import train_tokenizer

    text = tiny_text(24)
    (folder / "texts.txt").write_text(text, encoding="utf-8")
    (folder / "task.toml").write_text(QUESTION, encoding="utf-8")
    write_table(folder / "texts.csv", 24)
    (folder / "tables").mkdir()
    write_table(folder / "tables" / "train.jsonl", 6)
    write_table(folder / "tables" / "test.jsonl", 4)
    tokenizer = train_tokenizer(text.split("\n\n"), vocab_size=150)
    tokenizer.save(folder / "tokenizer")
    build_corpus(folder / "texts.txt", folder / "tokenizer", folder / "corpus", workers=0, shard_tokens=600)
    size = {"num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 32, "max_positions": 32}
    encoder = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **size), ("mlm", "pooler"))
    gpt_tokenizer = train_tokenizer(text.split("\n\n"), kind="bpe", vocab_size=300).without_special_tokens()
    config = Gpt2Config(
        vocab_size=gpt_tokenizer.vocab_size, eos_id=gpt_tokenizer.eos_id, **size | {"max_positions": 128}
    )
    for name, model, its in (
        ("run", encoder, tokenizer),
        ("gpt", model_class_of(config)(config, ("clm",)), gpt_tokenizer),
    ):
        model.initialize(torch.Generator().manual_seed(1))
        (folder / name).mkdir()
        save_model(folder / name, model)
        its.save(folder / name, size["max_positions"])
    changes = {"runtime.threads": 1}
    finetune(
        folder / "run",
        folder / "texts.csv",
        out=folder / "reviews",
        epochs=1,
        overrides=changes,
        log=lambda words: None,
    )
    return folder


def write_table(file: Path, num_rows: int) -> None:
    draw = chance.Random(str(file.name))
    words = ["the", "a", "of", "river", "teacher", "bridge", "morning", "letters"]
    rows = [
        (" ".join(draw.choices(words, k=5)) + (" lantern" * (i % 2)), ("dark", "light")[i % 2]) for i in range(num_rows)
    ]
    if file.suffix == ".jsonl":
        lines = (json.dumps({"text": text, "label": label}) for text, label in rows)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    with open(file, "w", newline="", encoding="utf-8") as opened:
        table = csv.writer(opened, delimiter="\t" if file.suffix == ".tsv" else ",")
        table.writerows([("text", "label"), *rows])
