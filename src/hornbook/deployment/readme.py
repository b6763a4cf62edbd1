"""README.md of an exported model: its inputs and outputs, and a short program that runs it without Hornbook."""

from hornbook.deployment.opened import Opened
from hornbook.models.padded import input_names, output_names

HEAD = """import numpy, onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_padding({padding})
tokenizer.enable_truncation({longest})
session = onnxruntime.InferenceSession("model.onnx")
texts = {texts}
names = {{"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}}
rows = tokenizer.encode_batch(texts)
fed = {{each.name: numpy.array([getattr(row, names[each.name]) for row in rows]) for each in session.get_inputs()}}
"""
TEXTS, PAIRS = ["A charming journey.", "Slow, very slow."], [("A charming journey.", "A fine film.")]
QUESTION = [("Who wrote it?", "It was written by a teacher in 1543.")]
ENDINGS = [("She opened the door", ending) for ending in ("and went in.", "of the sea.", "for seven.", "and slept.")]


def readme(model: Opened, to: str, longest: int, numbers: list[tuple[str, str]]) -> str:
    output = model.output
    what = "a model without a task head" if output is None else f"a model for {model.predictor.saved.name}"
    grouped = ", with one more dimension for rows that belong together" if model.group_size > 1 else ""
    rows = "\n".join(f"| {name} | {value} |" for name, value in numbers)
    return f"""# {model.model.family}, exported as {to}

`model.onnx` is {what}, written by `hornbook export`.

- inputs: {_code(input_names(model.model.config))}, int64, any number of rows of any length up to
  {model.model.config.max_positions}{grouped}; shorter rows are padded on the right, with 0 in `attention_mask`
- outputs: {_code(output_names(output))}, float32

To run it in this folder, `pip install onnxruntime tokenizers` and:

```python
{example(model, longest)}```

| measured | |
|---|---|
{rows}
"""


def example(model: Opened, longest: int) -> str:
    """Returns a program that runs the model with onnxruntime and tokenizers only."""
    texts, ending = _of_kind(model)
    tokenizer, padding = model.tokenizer, ""
    if tokenizer.pad_id is not None:
        padding = f"pad_id={tokenizer.pad_id}, pad_token={tokenizer.token(tokenizer.pad_id)!r}"
    return HEAD.format(padding=padding, longest=longest, texts=texts) + ending


def _of_kind(model: Opened) -> tuple[list, str]:
    """Returns example inputs for the task kind, and the lines of the program that decode the output."""
    output = model.output
    if output is None:
        return TEXTS, (
            'hidden, mask = session.run(None, fed)[0], fed["attention_mask"][..., None]\n'
            "print((hidden * mask).sum(1) / mask.sum(1))  # one vector per text\n"
        )
    if output.kind == "spans":
        return QUESTION, (
            'start, end = (each[0] for each in session.run(["start_logits", "end_logits"], fed))\n'
            "passage = [i for i, part in enumerate(rows[0].sequence_ids) if part == 1]\n"
            "spans = [(start[i] + end[j], i, j) for i in passage for j in passage if i <= j < i + 30]\n"
            "_, first, last = max(spans)\n"
            "print(texts[0][1][rows[0].offsets[first][0] : rows[0].offsets[last][1]])\n"
        )
    if output.kind == "choice":
        endings = (ENDINGS * model.group_size)[: model.group_size]
        return endings, (
            'logits = session.run(["logits"], {name: each[None] for name, each in fed.items()})[0]\n'
            "print(texts[logits[0].argmax()][1])\n"
        )
    texts, change = PAIRS if model.predictor.saved.has_pairs else TEXTS, ""
    if output.pairs != "joint":  # the two texts of a pair, or its two orders, are two rows
        texts = TEXTS if output.pairs == "separate" else [PAIRS[0], PAIRS[0][::-1]]
        change = "fed = {name: each[None] for name, each in fed.items()}\n"
    run = change + 'logits = session.run(["logits"], fed)[0]\n'
    if output.problem == "number":
        return texts, run + "print(logits[:, 0])\n"
    run += f"labels = {list(output.labels)}\n"
    if output.kind == "tokens":
        return texts, run + "print([(row.tokens[i], labels[k]) for row, ks in zip(rows, logits.argmax(-1)) " + (
            "for i, k in enumerate(ks)])\n"
        )
    if output.problem == "multi":
        return texts, run + "print([[labels[i] for i in numpy.flatnonzero(row > 0)] for row in logits])\n"
    return texts, run + "print([labels[i] for i in logits.argmax(-1)])\n"


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
