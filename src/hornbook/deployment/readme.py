"""README.md of an exported model: its inputs and outputs, and a short program that runs it without Hornbook."""

from hornbook.deployment.opened import Opened
from hornbook.models.padded import input_names, output_names
from hornbook.report.card import with_head
from hornbook.report.rendering import Table, render

TEXTS, PAIRS = ["A charming journey.", "Slow, very slow."], [("A charming journey.", "A fine film.")]
QUESTION = [("Who wrote it?", "It was written by a teacher in 1543.")]
ENDINGS = [("She opened the door", ending) for ending in ("and went in.", "of the sea.", "for seven.", "and slept.")]


def readme(model: Opened, to: str, longest: int, numbers: list[tuple[str, str]]) -> str:
    output, config, tokenizer, padding = model.output, model.model.config, model.tokenizer, ""
    if tokenizer.pad_id is not None:
        padding = f"pad_id={tokenizer.pad_id}, pad_token={tokenizer.token(tokenizer.pad_id)!r}"
    text = render(
        "exported.md",
        family=model.model.family,
        format=to,
        output=output,
        task="" if output is None else model.predictor.saved.name,
        inputs=input_names(config),
        outputs=output_names(output),
        max_positions=config.max_positions,
        is_grouped=model.group_size > 1,
        padding=padding,
        longest=longest,
        texts=_texts(model),
        measured=Table(("measured", ""), numbers),
    )
    return with_head(text, library_name="onnx", tags=["hornbook", "onnx", model.model.family])


def _texts(model: Opened) -> list:
    """Example inputs for the task kind."""
    output = model.output
    if output is None or output.pairs == "separate":
        return TEXTS
    if output.kind == "spans":
        return QUESTION
    if output.kind == "choice":
        return (ENDINGS * model.group_size)[: model.group_size]
    if output.pairs != "joint":
        return [PAIRS[0], PAIRS[0][::-1]]
    return PAIRS if model.predictor.saved.has_pairs else TEXTS
