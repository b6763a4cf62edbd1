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
TEXTS = ["A charming journey.", "Slow, very slow."]
HIDDEN = """hidden, mask = session.run(None, fed)[0], fed["attention_mask"][..., None]
print((hidden * mask).sum(1) / mask.sum(1))  # one vector per text
"""


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
    texts, ending = TEXTS, HIDDEN
    if model.output is not None:
        texts, ending = model.predictor.task.onnx_code(model.group_size, bool(model.predictor.saved.has_pairs))
    tokenizer, padding = model.tokenizer, ""
    if tokenizer.pad_id is not None:
        padding = f"pad_id={tokenizer.pad_id}, pad_token={tokenizer.token(tokenizer.pad_id)!r}"
    return HEAD.format(padding=padding, longest=longest, texts=texts) + ending


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
