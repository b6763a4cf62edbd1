"""`hornbook.pipeline`: a model as a function, with the names of tasks, arguments and results of `transformers`.

fill = hornbook.pipeline("fill-mask")
fill("Paris is the [MASK] of France.")[0]["token_str"]
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from hornbook.inference.decoder import DecoderModel
from hornbook.inference.encoder import EncoderModel
from hornbook.inference.features import choose_layers, frozen_sequences
from hornbook.inference.load import load
from hornbook.inference.loaded_model import LoadedModel, as_texts, which_text
from hornbook.inference.predictor import Predictor, load_predictor
from hornbook.interop.hub import DEFAULT
from hornbook.tasks.kinds.tagging import word_offsets

ALIASES = {"sentiment-analysis": "text-classification", "ner": "token-classification"}
# Accepted without effect: texts are batched by their number of tokens and never padded; fine-tuned models always
# truncate, fill-mask and text-generation never do. Feature-extraction has a `truncation` with effect.
IGNORED_ARGUMENTS = ("batch_size", "truncation", "padding")
WITH_BUILTIN_MODEL = ("fill-mask", "feature-extraction")  # tasks for which there is a built-in model


def pipeline(
    task: str, model: str | Path | None = None, device: str | int = "auto", **arguments: Any
) -> Callable[..., Any]:
    """A function that uses a model for a task, as `transformers.pipeline` returns.

    Args:
        task: `fill-mask`, `feature-extraction`, `text-classification` (`sentiment-analysis`), `token-classification`
            (`ner`), `question-answering` or `text-generation`.
        model: A run folder, a folder that `transformers` wrote, or a Hugging Face name; `fill-mask` and
            `feature-extraction` use the built-in English model by default.
        device: `cpu`, `cuda`, `cuda:1`, or the number of a GPU (-1: `cpu`); defaults to a GPU if there is one.
        arguments: Default arguments of the function, such as `top_k`.

    >>> import hornbook
    >>> hornbook.pipeline("fill-mask")("The book was [MASK] in 1998.")[0]["token_str"]
    'published'
    >>> hornbook.pipeline("text-classification", "runs/reviews")("A charming journey.")[0]["label"] in ("good", "bad")
    True
    """
    task = ALIASES.get(task, task)
    if task not in PIPELINES:
        raise ValueError(f"there is no pipeline '{task}': choose {', '.join([*PIPELINES, *ALIASES])}")
    if model is None and task not in WITH_BUILTIN_MODEL:
        raise ValueError(f"there is no built-in model for {task}: name a model")
    if isinstance(device, int):
        device = "cpu" if device < 0 else f"cuda:{device}"
    open_model, run = PIPELINES[task]
    _, _, *names = inspect.signature(run).parameters  # without the model and the input

    def with_effect(given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in names or name not in IGNORED_ARGUMENTS}

    arguments = with_effect(arguments)
    if unknown := arguments.keys() - set(names):
        allowed = ", ".join(dict.fromkeys([*names, *IGNORED_ARGUMENTS]))
        raise ValueError(f"the pipeline {task} has no argument '{min(unknown)}': it has {allowed}")
    opened = open_model(model or DEFAULT, device)
    return lambda *inputs, **given: run(opened, *inputs, **(arguments | with_effect(given)))


def _open_masked_lm(model: str | Path, device: str) -> EncoderModel:
    loaded = load(model, device=device)
    if isinstance(loaded, DecoderModel) and loaded.model.config.is_hybrid:
        loaded = loaded.encoder
    if not isinstance(loaded, EncoderModel):
        raise ValueError(f"{model} is a GPT, which cannot fill in masks: use text-generation")
    return loaded


def _open_gpt(model: str | Path, device: str) -> DecoderModel:
    loaded = load(model, device=device)
    if not isinstance(loaded, DecoderModel):
        raise ValueError(f"{model} is an encoder, which cannot generate text: use a GPT")
    return loaded


def _open_finetuned(*kinds: str) -> Callable[[str | Path, str], Predictor]:
    """Opens a model that was fine-tuned for one of these kinds of task."""

    def open_predictor(model: str | Path, device: str) -> Predictor:
        predictor = load_predictor(model, device)
        if predictor.task.kind not in kinds:
            raise ValueError(f"{model} was fine-tuned for {predictor.task.kind}, not for {kinds[0]}")
        return predictor

    return open_predictor


def fill_mask(model: EncoderModel, inputs: str | Sequence[str], top_k: int = 5) -> list:
    """A text with one mask: a list of {score, token, token_str, sequence}; with several masks, a list of these."""
    texts = []
    for masks in model.fill_mask(as_texts(inputs, "inputs"), top_k):
        rows = [
            [
                {
                    "score": prediction.probability,
                    "token": model.tokenizer.id(prediction.token),
                    "token_str": prediction.word,
                    "sequence": prediction.text,
                }
                for prediction in predictions
            ]
            for predictions in masks
        ]
        texts.append(rows[0] if len(rows) == 1 else rows)
    return texts[0] if isinstance(inputs, str) else texts


@torch.inference_mode()
def feature_extraction(model: LoadedModel, inputs: str | Sequence[str], truncation: bool = False) -> list:
    """The last hidden states of every token, special ones included: a list of 1 x tokens x width per text. With
    `truncation=True`, a text longer than the model's maximum is truncated; otherwise it is refused."""
    tokenizer, config = model.tokenizer, model.model.config
    encodings = tokenizer.encode_batch(as_texts(inputs, "inputs"))
    limit, num_special = config.max_positions, tokenizer.num_special(False)
    for i, encoding in enumerate(encodings):
        if truncation:
            encoding.truncate(limit - num_special)
        elif (length := len(encoding.ids) + num_special) > limit:
            raise ValueError(
                f"{which_text(i, encodings)} has {length} tokens, {length - limit} more than the model's maximum of "
                f"{limit}: shorten it, or pass truncation=True"
            )
    encoded = [tokenizer.with_special_tokens(each) for each in encodings]
    features: list[list] = [[[]] for _ in encoded]  # without any token, not even a special one, there is no row
    ids, segments = [each.ids for each in encoded], [each.type_ids for each in encoded]
    for i, x_TD in frozen_sequences(model.model, ids, segments, choose_layers("last", config.num_layers), "none"):
        features[i] = [x_TD.tolist()]
    return features[0] if isinstance(inputs, str) else features


def text_classification(predictor: Predictor, inputs: Any, top_k: int | Literal["best"] | None = "best") -> list:
    """A text, a pair ({text, text_pair}) or a list of these: the `best` label of each, in one list; for a number, or
    None for all, a list of the `top_k` best labels of each. A label is {label, score}."""
    is_single = isinstance(inputs, str | dict) or not isinstance(inputs, Iterable)
    num_labels = 1 if top_k == "best" else top_k
    labels = []
    for prediction in predictor.predict_all([_pair(item) for item in ([inputs] if is_single else inputs)]):
        best = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])[:num_labels]
        labels.append([{"label": label, "score": score} for label, score in best])
    if is_single:
        return labels[0]
    return [best[0] for best in labels] if top_k == "best" else labels


def _pair(item: Any) -> Any:
    if isinstance(item, dict) and "text" in item:
        return (item["text"], item["text_pair"]) if item.get("text_pair") is not None else item["text"]
    return item


def token_classification(predictor: Predictor, inputs: str | Sequence[str], aggregation_strategy: str = "none") -> list:
    """A text or a list: the words with a tag other than O, each {entity, score, index, word, start, end}; with
    `aggregation_strategy="simple"`, the entities, each {entity_group, score, word, start, end}."""
    if aggregation_strategy not in ("none", "simple"):
        raise ValueError(f"aggregation_strategy must be none or simple, not '{aggregation_strategy}'")
    texts = as_texts(inputs, "inputs")
    rows = zip(texts, predictor.describe(texts, predictor.predict(texts)), strict=True)
    words = [_entities(row) if aggregation_strategy == "simple" else _tagged_words(text, row) for text, row in rows]
    return words[0] if isinstance(inputs, str) else words


def _tagged_words(text: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    columns = (row["words"], row.get("tags", ()), row.get("probabilities", ()), word_offsets(row["words"], text))
    return [
        {"entity": tag, "score": score, "index": index, "word": word, "start": start, "end": end}
        for index, (word, tag, score, (start, end)) in enumerate(zip(*columns, strict=False), 1)
        if tag != "O"
    ]


def _entities(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "entity_group": entity["type"],
            "score": float(np.mean(row["probabilities"][entity["first_word"] : entity["last_word"] + 1])),
            "word": entity["text"],
            "start": entity["start"],
            "end": entity["end"],
        }
        for entity in row.get("entities", ())
    ]


def question_answering(predictor: Predictor, question: str, context: str, top_k: int = 1) -> Any:
    """`question` and `context`: {score, start, end, answer}; the answer is empty if the model finds none."""
    (prediction,) = predictor.predict_all([(question, context)])
    if not prediction.answer:
        return {"score": 0.0, "start": 0, "end": 0, "answer": ""}
    rows = [
        {"score": answer.probability, "start": answer.start, "end": answer.end, "answer": answer.text}
        for answer in prediction.n_best[:top_k]
    ]
    return rows[0] if top_k == 1 else rows


def text_generation(
    model: DecoderModel,
    inputs: str | Sequence[str],
    max_new_tokens: int = 100,
    do_sample: bool = True,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    num_return_sequences: int = 1,
    seed: int = 0,
    return_full_text: bool = True,
) -> list:
    """A prompt: [{generated_text}] with `num_return_sequences` texts, prompt included unless `return_full_text` is
    False; for a list of prompts, a list of these."""
    prompts = as_texts(inputs, "inputs")
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p} if do_sample else {"temperature": 0.0}
    settings |= {"repetition_penalty": repetition_penalty, "num_return_sequences": num_return_sequences, "seed": seed}
    texts = [
        [{"generated_text": prompt + sample.text if return_full_text else sample.text} for sample in samples]
        for prompt, samples in zip(prompts, model.generate(prompts, max_new_tokens, **settings), strict=True)
    ]
    return texts[0] if isinstance(inputs, str) else texts


# For each task, a function that opens a model, and one that uses it.
PIPELINES: dict[str, tuple[Callable[[str | Path, str], Any], Callable[..., Any]]] = {
    "fill-mask": (_open_masked_lm, fill_mask),
    "feature-extraction": (lambda model, device: load(model, device=device), feature_extraction),
    "text-classification": (_open_finetuned("classification", "multi-label"), text_classification),
    "token-classification": (_open_finetuned("tagging"), token_classification),
    "question-answering": (_open_finetuned("spans"), question_answering),
    "text-generation": (_open_gpt, text_generation),
}
