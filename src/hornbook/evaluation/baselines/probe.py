"""The feature-based approach (Devlin et al. 2018, section 5.3): a separate model on activations of a frozen encoder.

Texts, pairs and choices go through logistic regression (ridge regression for numbers), words through logistic
regression or a two-layer BiLSTM. To train a probe by gradient descent, fine-tune with `layers.frozen=-1`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hornbook.config import checked
from hornbook.evaluation.baselines.baseline import finish, start_run
from hornbook.evaluation.baselines.linear import Fitted, fit_labels, fit_logistic, sampled_words
from hornbook.evaluation.baselines.tagger import DEFAULT_OVERRIDES, fit_tagger
from hornbook.inference.features import DEFAULT_LAYERS, Layers, Pooling, choose_layers, choose_pooling, frozen_sequences
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.runs.finetuning.inputs import FinetuneInputs, open_inputs, refuse_without_baselines
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.scores import TaskResult
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.records import Example
from hornbook.tasks.task import Task
from hornbook.train.job import OnProgress
from hornbook.train.runtime import choose_runtime, torch_settings_restored

Method = Literal["logistic", "bilstm"]


@lock_output_folder
@torch_settings_restored()
def probe(
    model: str,
    data: Any,
    task: str,
    out: str | Path,
    *,
    method: Method = "logistic",
    layers: str = DEFAULT_LAYERS,
    pooling: Pooling | None = None,
    seed: int = 0,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    overrides: dict | None = None,
    device: str = "auto",
    on_progress: OnProgress = ignore,
    log: Log = ignore,
) -> TaskResult:
    """Fits a separate model on frozen features of the encoder `model`, and writes its scores to the folder `out`.

    >>> import hornbook
    >>> 0 <= hornbook.probe("runs/first", "reviews.csv", "classification", "runs/probe").score <= 1
    True

    `method` is `logistic` or, for tagging, `bilstm`. `pooling` is `cls` (the first token), `lasttoken` (for a causal
    model) or `mean` over the tokens of a text (the default); words are read at their first token. `overrides` are
    fine-tuning settings by their dotted name, such as `examples`, `task.max_length`, `task.pair_encoding` or, for the
    BiLSTM, `epochs` and `optimizer.lr`. `device` defaults to a GPU if there is one. Raises `Stopped` if its training
    was stopped.
    """
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    options = {"seed": seed, "strict": strict, "overrides": overrides, "device": device}
    request = FinetuneRequest.of(model, data, task, **reading, **options)
    refuse_without_baselines(task)
    inputs = open_inputs(with_defaults(request), data, log)
    return probe_inputs(
        Path(out), request, inputs, method=method, layers=layers, pooling=pooling, on_progress=on_progress, log=log
    )


def with_defaults(request: FinetuneRequest) -> FinetuneRequest:
    """The request with the BiLSTM's default training settings, which its overrides take precedence over."""
    return replace(request, overrides=DEFAULT_OVERRIDES | request.overrides)


def probe_inputs(
    out: Path,
    request: FinetuneRequest,
    inputs: FinetuneInputs,
    *,
    method: Method = "logistic",
    layers: str = DEFAULT_LAYERS,
    pooling: Pooling | None = None,
    on_progress: OnProgress = ignore,
    log: Log = ignore,
) -> TaskResult:
    """Like `probe`, for data and a model that are already loaded."""
    task = inputs.spec.task
    _check(task, method, pooling)
    pooling = None if task.label_scope == "word" else choose_pooling(pooling or "mean", inputs.pretrained)
    chosen = choose_layers(layers, inputs.pretrained.config.num_layers)
    options = {"method": method, "layers": layers, "pooling": pooling}
    if done := start_run(out, "probe", request, options, inputs.data):
        return done
    runtime = choose_runtime(inputs.settings.runtime, 0.0)
    inputs.pretrained.to(runtime.device)
    if task.label_scope == "word":
        if method == "bilstm":
            return fit_tagger(out, inputs, chosen, runtime, on_progress, log)
        return _tag_by_word(out, inputs, chosen, log)
    encoded = inputs.encoded_train
    if encoded.num_truncated:
        log(f"{encoded.num_truncated:,} texts of train are longer than {inputs.max_length} tokens and were truncated")
    log(f"computing frozen features of {len(inputs.train):,} examples: {layers}, {pooling}")
    vectors = _vectors(inputs, encoded, chosen, pooling)
    fitted = _fit(inputs, vectors, encoded)

    def predict(name: str, examples: list[Example]) -> list:
        encoded = inputs.encode(examples)
        logits = fitted.decision_function(_vectors(inputs, encoded, chosen, pooling))
        if task.label_scope == "choice":
            logits = (logits[:, 1] - logits[:, 0]).reshape(-1, encoded.group_size)
        return task.decode(list(logits), encoded, examples)

    return finish(out, inputs, predict, {**fitted.params, "width": vectors.shape[1]})


def _check(task: Task, method: str, pooling: str | None) -> None:
    checked(method, Method, "method")
    if pooling not in (None, "cls", "lasttoken", "mean"):
        raise ValueError(f"pooling must be cls, lasttoken or mean, not '{pooling}'")
    if task.label_scope == "passage":
        raise ValueError(f"there is no probe for {task.kind}: fine-tune with layers.frozen=-1 to train only the head")
    if method == "bilstm" and task.label_scope != "word":
        raise ValueError("the BiLSTM probe is for tagging: use method='logistic' for this task")
    if task.label_scope == "word" and pooling is not None:
        raise ValueError("words are read at their first token and are not pooled: leave pooling out")


def _vectors(inputs: FinetuneInputs, encoded: EncodedExamples, layers: Layers, pooling: Pooling) -> np.ndarray:
    """One feature row per sequence. Separately encoded pairs u, v give one row [u, v, |u - v|, u * v] per pair; pairs
    encoded in both orders give the sum."""
    vectors = np.zeros((len(encoded.ids), layers.width(inputs.pretrained.config.width)), np.float32)
    for i, vector in frozen_sequences(inputs.pretrained, encoded.ids, encoded.segments, layers, pooling):
        vectors[i] = vector
    if inputs.spec.task.head_config.pair_encoding == "joint":
        return vectors
    u, v = vectors[0::2], vectors[1::2]
    if inputs.spec.task.head_config.pair_encoding == "both":
        return u + v
    return np.concatenate([u, v, np.abs(u - v), u * v], 1)


def _fit(inputs: FinetuneInputs, vectors: np.ndarray, encoded: EncodedExamples) -> Fitted:
    task, seed = inputs.spec.task, inputs.settings.runtime.seed
    # Each choice is classified as right or wrong; the likeliest per question is chosen.
    if task.label_scope == "choice":
        is_right = np.tile(np.arange(encoded.group_size), encoded.num_groups) == encoded.labels
        return fit_logistic(vectors, is_right.astype(int), 2, seed)
    return fit_labels(task, vectors, encoded.labels[:: encoded.group_size], seed)


def _tag_by_word(out: Path, inputs: FinetuneInputs, layers: Layers, log: Log) -> TaskResult:
    """Logistic regression at each word's first token."""
    encoded, width = inputs.encoded_train, layers.width(inputs.pretrained.config.width)
    positions = [
        (sequence, token) for sequence, words in enumerate(encoded.decode_info) for _, token in words
        if encoded.token_labels[sequence][token] >= 0
    ]  # fmt: skip
    positions = [positions[i] for i in sampled_words(len(positions), inputs.settings.runtime.seed, log)]
    rows_of: dict[int, list[tuple[int, int]]] = {}  # row and token of each chosen word, by sequence
    for row, (sequence, token) in enumerate(positions):
        rows_of.setdefault(sequence, []).append((row, token))
    sequences = sorted(rows_of)
    ids, segments = [encoded.ids[i] for i in sequences], [encoded.segments[i] for i in sequences]
    vectors, labels = np.zeros((len(positions), width), np.float32), np.zeros(len(positions), int)
    for i, states in frozen_sequences(inputs.pretrained, ids, segments, layers, "none"):
        for row, token in rows_of[sequences[i]]:
            vectors[row], labels[row] = states[token], encoded.token_labels[sequences[i]][token]
    num_labels = inputs.spec.task.head_config.num_labels
    fitted = fit_logistic(vectors, labels, num_labels, inputs.settings.runtime.seed)

    def predict(name: str, examples: list[Example]) -> list:
        encoded = inputs.encode(examples)
        logits = [np.zeros((len(each), num_labels)) for each in encoded.ids]
        for i, states in frozen_sequences(inputs.pretrained, encoded.ids, encoded.segments, layers, "none"):
            logits[i] = fitted.decision_function(states)
        return inputs.spec.task.decode(logits, encoded, examples)

    return finish(out, inputs, predict, {**fitted.params, "words": len(positions), "width": width})
