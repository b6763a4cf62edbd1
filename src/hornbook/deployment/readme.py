"""README.md of an exported model: its inputs and outputs, and a short program that runs it without Hornbook."""

from hornbook.deployment.loading import MeasuredModel
from hornbook.models.padded import input_names, output_names
from hornbook.report.card import with_yaml_header
from hornbook.report.rendering import Table, render
from hornbook.tasks.kinds.texts import ONE


def readme(model: MeasuredModel, format: str, max_length: int, numbers: list[tuple[str, str]]) -> str:
    head_config, config, tokenizer, padding = model.head_config, model.model.config, model.tokenizer, ""
    task, texts, code = "", ONE, ""
    if head_config is not None:
        task = model.predictor.spec.name
        texts, code = model.predictor.task.onnx_code(model.group_size, bool(model.predictor.spec.has_pairs))
    if tokenizer.pad_id is not None:
        padding = f"pad_id={tokenizer.pad_id}, pad_token={tokenizer.token(tokenizer.pad_id)!r}"
    text = render(
        "exported.md",
        family=model.model.family,
        format=format,
        task=task,
        inputs=input_names(config),
        outputs=output_names(head_config),
        max_positions=config.max_positions,
        is_grouped=model.group_size > 1,
        padding=padding,
        max_length=max_length,
        texts=texts,
        code=code,
        measured=Table(("measured", ""), numbers),
    )
    return with_yaml_header(text, library_name="onnx", tags=["hornbook", "onnx", model.model.family])
