"""`hornbook.load` and `hornbook.evaluate`."""

from pathlib import Path
from typing import Any, Literal

from torch import nn

from hornbook.config import checked
from hornbook.devices import chosen_device
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.encoder import EncoderModel
from hornbook.inference.loaded import linear_layers, to_column_major
from hornbook.inference.predictor import load_predictor
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import DEFAULT, model_folder, shown_name
from hornbook.models.gpt import Gpt
from hornbook.nn.int8 import WeightFormat


def load(
    name: str | Path = DEFAULT,
    weights: WeightFormat = "float",
    device: str = "auto",
    direction: Literal["causal", "bidirectional"] | None = None,
) -> EncoderModel | DecoderModel:
    """Loads a model for inference.

    Args:
        name: A run folder, a folder that `transformers` wrote, a Hugging Face name, or a built-in model: by default the
            English one, `en`.
        weights: `int8` quantises the matrices of a GPT to 8 bits, which is faster on a CPU; CPU only.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        direction: How a hybrid GPT, which learned both, reads: `causal` (the default) to generate and score texts,
            `bidirectional` as an encoder.

    Returns:
        An encoder (`fill_mask`, `embed`, `score` ...) or a GPT (`generate`, `score`, `perplexity`). A fine-tuned run
        also has `predict` and `evaluate`.

    >>> import hornbook
    >>> hornbook.load().fill_mask("The book was [MASK] in 1998.")[0][0].word
    'published'
    >>> hornbook.load("runs/first").embed(["a text", "another"]).shape
    (2, 32)
    >>> hornbook.load("runs/reviews").predict(["A charming journey."])[0].label in ("good", "bad")
    True
    """
    checked(weights, WeightFormat, "weights")
    if weights == "int8" and device not in ("auto", "cpu"):
        raise ValueError(f"int8 weights run on a CPU only: use float weights on {device}, or device cpu")
    device = "cpu" if weights == "int8" else chosen_device(device)
    folder = model_folder(name)
    model, tokenizer = load_folder(folder)
    if weights == "int8":
        if not isinstance(model, Gpt):
            raise ValueError(
                f"{shown_name(folder)} is {model.described()}: int8 weights are for GPT models only; use float weights"
            )
        model.quantize()
    elif isinstance(model, Gpt) and device == "cpu":
        to_column_major(gpt_matrices(model))
    opened = (DecoderModel if isinstance(model, Gpt) else EncoderModel)(model.to(device), tokenizer, folder)
    if direction == "bidirectional" and isinstance(opened, DecoderModel):
        return opened.encoder
    if direction is not None and (direction != "causal" or isinstance(opened, EncoderModel)):
        raise ValueError(f"{shown_name(folder)} is {model.described()}; direction is for a hybrid GPT: leave it out")
    return opened


def evaluate(
    run: str | Path | list[str | Path],
    data: Any,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    split: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    device: str = "auto",
    graph: str | Path | None = None,
    task: str | None = None,
) -> dict[str, Any]:
    """Computes the task's standard metrics of a fine-tuned run on labelled data, with 95% intervals.

    Args:
        run: A fine-tuned run or folder, or several, which form an ensemble.
        data: A file, a folder, a data frame or a list of dictionaries.
        text, pair, label: Column names; default to those of the run, or are inferred.
        split: The split to score; defaults to every labelled split but train.
        delimiter, encoding: Of a text file; inferred by default.
        strict: Raise a `ValueError` at the first bad row.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        graph: For runs that read entities: the folder of their graph, if it was moved.
        task: `similarity` for a model without a task head, whose vectors are compared.

    Returns:
        A dictionary: `splits` (value, low and high by split and metric), `tables` (the scores of each class and the
        confusion matrix), `task`, `metric_for_best`, the numbers of `examples`, `unlabelled` and `truncated_texts` by
        split, `unknown_labels`, `messages`, `notes` and `problems`.

    >>> import hornbook
    >>> scores = hornbook.evaluate("runs/reviews", "reviews.csv")
    >>> scores["examples"], sorted(scores["tables"]["dev"]["classes"])
    ({'dev': 24}, ['bad', 'good'])
    """
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    return load_predictor(run, device, graph, task).evaluate(data, **reading, split=split, strict=strict)


def gpt_matrices(model: Gpt) -> list[nn.Linear | nn.Embedding]:
    """The layers whose weights are read for every generated token: those of the blocks, and the vocabulary."""
    return [*linear_layers(model.blocks), model.embeddings.tokens]
