"""`hornbook.pipeline`: a model as a function, with the names of tasks, arguments and results of `transformers`.

fill = hornbook.pipeline("fill-mask")
fill("Paris is the [MASK] of France.")[0]["token_str"]
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Encoding

from hornbook.inference.decoder import DecoderModel
from hornbook.inference.encoder import EncoderModel, MaskPrediction
from hornbook.inference.features import choose_layers, frozen_sequences
from hornbook.inference.load import load
from hornbook.inference.loaded_model import as_texts, which_text
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
    _, _, *names = inspect.signature(PIPELINES[task].__call__).parameters  # without self and the input
    arguments = {name: value for name, value in arguments.items() if name in names or name not in IGNORED_ARGUMENTS}
    if unknown := arguments.keys() - set(names):
        allowed = ", ".join(dict.fromkeys([*names, *IGNORED_ARGUMENTS]))
        raise ValueError(f"the pipeline {task} has no argument '{min(unknown)}': it has {allowed}")
    function = PIPELINES[task](model or DEFAULT, device)

    def call(*inputs: Any, **given: Any) -> Any:
        given = {name: value for name, value in given.items() if name in names or name not in IGNORED_ARGUMENTS}
        return function(*inputs, **(arguments | given))

    return call


class FillMask:
    """A text with one mask: a list of {score, token, token_str, sequence}; with several masks, a list of these."""

    def __init__(self, model: str | Path, device: str):
        self.model = load(model, device=device)
        if isinstance(self.model, DecoderModel) and self.model.model.config.is_hybrid:
            self.model = self.model.encoder
        if not isinstance(self.model, EncoderModel):
            raise ValueError(f"{model} is a GPT, which cannot fill in masks: use text-generation")

    def __call__(self, inputs: str | Sequence[str], top_k: int = 5) -> list:
        texts = [self._masks(masks) for masks in self.model.fill_mask(as_texts(inputs, "inputs"), top_k)]
        return texts[0] if isinstance(inputs, str) else texts

    def _masks(self, masks: list[list[MaskPrediction]]) -> list:
        rows = [[self._row(prediction) for prediction in predictions] for predictions in masks]
        return rows[0] if len(rows) == 1 else rows

    def _row(self, prediction: MaskPrediction) -> dict[str, Any]:
        return {
            "score": prediction.probability,
            "token": self.model.tokenizer.id(prediction.token),
            "token_str": prediction.word,
            "sequence": prediction.text,
        }


class FeatureExtraction:
    """The last hidden states of every token, special ones included: a list of 1 x tokens x width per text. With
    `truncation=True`, a text longer than the model's maximum is truncated; otherwise it is refused."""

    def __init__(self, model: str | Path, device: str):
        self.model = load(model, device=device)

    @torch.inference_mode()
    def __call__(self, inputs: str | Sequence[str], truncation: bool = False) -> list:
        encodings = self.model.tokenizer.encode_batch(as_texts(inputs, "inputs"))
        encoded = [self._encode(each, truncation, which_text(i, encodings)) for i, each in enumerate(encodings)]
        features: list[list] = [[[]] for _ in encoded]  # without any token, not even a special one, there is no row
        ids, segments = [each.ids for each in encoded], [each.type_ids for each in encoded]
        last = choose_layers("last", self.model.model.config.num_layers)
        for i, x_TD in frozen_sequences(self.model.model, ids, segments, last, "none"):
            features[i] = [x_TD.tolist()]
        return features[0] if isinstance(inputs, str) else features

    def _encode(self, encoding: Encoding, truncation: bool, which: str) -> Encoding:
        """The encoding with special tokens, of at most the maximum length of the model."""
        tokenizer, limit = self.model.tokenizer, self.model.model.config.max_positions
        num_special = tokenizer.num_special(False)
        if truncation:
            encoding.truncate(limit - num_special)
        elif (length := len(encoding.ids) + num_special) > limit:
            raise ValueError(
                f"{which} has {length} tokens, {length - limit} more than the model's maximum of {limit}: shorten it, "
                "or pass truncation=True"
            )
        return tokenizer.with_special_tokens(encoding)


class _FinetunedPipeline:
    kinds: tuple[str, ...]  # kinds of task that the model may be fine-tuned for

    def __init__(self, model: str | Path, device: str):
        self.predictor: Predictor = load_predictor(model, device)
        if self.predictor.spec.kind not in self.kinds:
            raise ValueError(f"{model} was fine-tuned for {self.predictor.spec.kind}, not for {self.kinds[0]}")


class TextClassification(_FinetunedPipeline):
    """A text, a pair ({text, text_pair}) or a list of these: [{label, score}], with the `top_k` best labels each; None
    for all."""

    kinds = ("classification", "multi-label")

    def __call__(self, inputs: Any, top_k: int | None = 1) -> list:
        is_single = isinstance(inputs, str | dict)
        items = [_pair(item) for item in ([inputs] if is_single else inputs)]
        labels = []
        for prediction in self.predictor.predict_all(items):
            best = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])[:top_k]
            labels.append([{"label": label, "score": score} for label, score in best])
        if is_single:
            return labels[0]
        return [best[0] for best in labels] if top_k == 1 else labels


class TokenClassification(_FinetunedPipeline):
    """A text or a list: the words with a tag other than O, each {entity, score, index, word, start, end}; with
    `aggregation_strategy="simple"`, the entities, each {entity_group, score, word, start, end}."""

    kinds = ("tagging",)

    def __call__(self, inputs: str | Sequence[str], aggregation_strategy: str = "none") -> list:
        if aggregation_strategy not in ("none", "simple"):
            raise ValueError(f"aggregation_strategy must be none or simple, not '{aggregation_strategy}'")
        texts = as_texts(inputs, "inputs")
        predictions = self.predictor.predict(texts)
        rows = zip(texts, self.predictor.describe(texts, predictions), strict=True)
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


class QuestionAnswering(_FinetunedPipeline):
    """`question` and `context`: {score, start, end, answer}; the answer is empty if the model finds none."""

    kinds = ("spans",)

    def __call__(self, question: str, context: str, top_k: int = 1) -> Any:
        (prediction,) = self.predictor.predict_all([(question, context)])
        if not prediction.answer:
            return {"score": 0.0, "start": 0, "end": 0, "answer": ""}
        rows = [
            {"score": answer.probability, "start": answer.start, "end": answer.end, "answer": answer.text}
            for answer in prediction.n_best[:top_k]
        ]
        return rows[0] if top_k == 1 else rows


class TextGeneration:
    """A prompt: [{generated_text}] with `num_return_sequences` texts, prompt included unless `return_full_text` is
    False; for a list of prompts, a list of these."""

    def __init__(self, model: str | Path, device: str):
        self.model = load(model, device=device)
        if not isinstance(self.model, DecoderModel):
            raise ValueError(f"{model} is an encoder, which cannot generate text: use a GPT")

    def __call__(
        self,
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
        prompts = as_texts(inputs, "inputs")
        settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p} if do_sample else {"temperature": 0.0}
        settings |= {
            "repetition_penalty": repetition_penalty,
            "num_return_sequences": num_return_sequences,
            "seed": seed,
        }
        texts = [
            [{"generated_text": prompt + sample.text if return_full_text else sample.text} for sample in samples]
            for prompt, samples in zip(prompts, self.model.generate(prompts, max_new_tokens, **settings), strict=True)
        ]
        return texts[0] if isinstance(inputs, str) else texts


PIPELINES: dict[str, Callable[[str | Path, str], Callable[..., Any]]] = {
    "fill-mask": FillMask,
    "feature-extraction": FeatureExtraction,
    "text-classification": TextClassification,
    "token-classification": TokenClassification,
    "question-answering": QuestionAnswering,
    "text-generation": TextGeneration,
}


def _pair(item: Any) -> Any:
    if isinstance(item, dict) and "text" in item:
        return (item["text"], item["text_pair"]) if item.get("text_pair") is not None else item["text"]
    return item
