"""The feature-based approach (Devlin et al. 2018, section 5.3): a separate model on activations of a frozen encoder.

Texts, pairs and choices go through logistic regression (ridge regression for numbers), words through logistic
regression or a tagger, a two-layer BiLSTM, 768 units per direction. To train a probe by gradient descent, fine-tune
with `layers.frozen=-1`.

For the tagger, the features of all words are written once to a file. A word's row number in it serves as its token id,
so that it uses the training loop and the objective of fine-tuning.

Shapes: W words in the file, T words in a batch, N sentences, S longest sentence, F feature width, H BiLSTM output,
L tags.
"""

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import checked
from hornbook.data.shards import load_array
from hornbook.evaluation.baselines.baseline import finish, start_run
from hornbook.evaluation.baselines.linear import Fitted, fit_labels, fit_logistic, sampled_words
from hornbook.files import refusing_damage, replacing, write_tensors
from hornbook.inference.features import DEFAULT_LAYERS, Layers, Pooling, choose_layers, choose_pooling, frozen_sequences
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.models.head_config import HeadConfig
from hornbook.models.heads import to_padded
from hornbook.runs.finetuning.inputs import FinetuneInputs, open_inputs, refuse_without_baselines
from hornbook.runs.finetuning.job import TaskBatches, with_steps
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import TaskResult
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.evaluation import Evaluation, evaluate_split
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.records import Example
from hornbook.tasks.task import Task
from hornbook.train.job import OnProgress, TrainingJob
from hornbook.train.loop import train
from hornbook.train.objective import TrainingModule
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch, torch_settings_restored

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


# ---- the BiLSTM on words


WIDTH, NUM_LAYERS, DROPOUT = 768, 2, 0.1
DEFAULT_OVERRIDES = {"epochs": "5", "optimizer.lr": "0.001"}  # not given in the paper
WORDS, WEIGHTS = "words.npy", "tagger.safetensors"


class Tagger(nn.Module):
    """`words_WF` are the features of all words; `ids_T` of a batch are row numbers in it."""

    def __init__(self, words_WF: np.ndarray, head_config: HeadConfig, width: int):
        super().__init__()
        self.words_WF, self.head_config = words_WF, head_config
        self.dropout = nn.Dropout(DROPOUT)
        self.lstm = nn.LSTM(words_WF.shape[1], width, NUM_LAYERS, batch_first=True, bidirectional=True, dropout=DROPOUT)
        self.out = nn.Linear(2 * width, head_config.num_labels)

    def outputs(self, batch: Batch) -> Tensor:
        """Logits of tags, T x L."""
        x_TF = torch.from_numpy(self.words_WF[batch.ids_T.cpu().numpy()]).to(batch.ids_T.device)
        x_NSF, mask_NS = to_padded(self.dropout(x_TF), batch)
        lengths = mask_NS.sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x_NSF, lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.lstm(packed)
        x_NSH, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=x_NSF.shape[1])
        positions_T = mask_NS.flatten().nonzero()[:, 0]
        return self.out(self.dropout(x_NSH.flatten(0, 1).index_select(0, positions_T)))


def fit_tagger(
    out: Path, inputs: FinetuneInputs, layers: Layers, runtime: Runtime, on_progress: OnProgress, log: Log
) -> TaskResult:
    """Trains the tagger in the folder `out`, or resumes its training, and scores it."""
    splits: dict[str, tuple[list[Example], EncodedExamples]] = {
        "train": (inputs.train, inputs.encoded_train),
        "dev": (inputs.dev, inputs.encoded_dev),
    }
    for name, examples in inputs.other_splits().items():
        splits[name] = (examples, inputs.encode(examples))
    log("computing frozen features of all words")
    table, sentences = _write_words(out / WORDS, inputs, layers, splits)
    settings = with_steps(inputs.settings, sentences["train"])
    configure_torch(runtime)
    task = inputs.spec.task
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(settings.runtime.seed, "tagger"))
        model = Tagger(table, task.head_config, WIDTH).to(runtime.device)
    objective = TaskObjective(task.head_config)
    objective.is_capturable = False  # features are copied from the host at each step

    def predict(name: str) -> Evaluation:
        examples, encoded = splits[name][0], sentences[name]
        return evaluate_split(model, task, examples, encoded, runtime.autocast, settings.batch.micro_tokens)

    def check(micro_tokens: int) -> dict[str, float]:
        evaluation = predict("dev")
        return {"loss": evaluation.loss, **evaluation.scores}

    def load(folder: Path) -> None:
        model.load_state_dict(load_file(folder / WEIGHTS))

    def save(folder: Path) -> None:
        write_tensors(folder / WEIGHTS, {name: value.contiguous() for name, value in model.state_dict().items()})

    batches = TaskBatches(sentences["train"], settings.batch_size, settings.runtime.seed)
    module = TrainingModule(model, objective)
    job = TrainingJob(module, batches, check, save, load, metric_for_best=task.metrics[0])
    outcome = train(out, job, settings, runtime, on_progress)
    load(out / "best")
    fitted = {"width": WIDTH, "layers": NUM_LAYERS, "features": table.shape[1], "best_step": outcome.best_step}

    scored = finish(out, inputs, lambda name, examples: predict(name).predictions, fitted)
    (out / WORDS).unlink(missing_ok=True)
    return scored


def _write_words(
    file: Path, inputs: FinetuneInputs, layers: Layers, splits: dict[str, tuple[list[Example], EncodedExamples]]
) -> tuple[np.ndarray, dict[str, EncodedExamples]]:
    """Writes the features of every word's first token; returns them, and the sentences of each split as row numbers."""
    numbered, num_words = {}, 0
    for name, (examples, encoded) in splits.items():
        numbered[name] = _sentences(examples, encoded, inputs.spec.task.head_config, num_words)
        num_words += sum(map(len, numbered[name].ids))
    if not file.exists():
        with replacing(file) as temporary:
            shape = (max(num_words, 1), layers.width(inputs.pretrained.config.width))
            rows = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            for name, (_, encoded) in splits.items():
                sentences = numbered[name]
                columns = (sentences.example_ids.tolist(), sentences.ids, sentences.decode_info)
                word_of = {  # for each sentence, the row number of each of its words
                    example_id: {word: int(ids[position]) for word, position in positions}
                    for example_id, ids, positions in zip(*columns, strict=True)
                }
                for i, states in frozen_sequences(inputs.pretrained, encoded.ids, encoded.segments, layers, "none"):
                    for word, token in encoded.decode_info[i]:
                        rows[word_of[int(encoded.example_ids[i])][word]] = states[token]
            rows.flush()
    with refusing_damage(file, "remove it and run the same command again"):
        return load_array(file, mmap_mode="r"), numbered


def _sentences(
    examples: list[Example], encoded: EncodedExamples, head_config: HeadConfig, first: int
) -> EncodedExamples:
    """One sequence of row numbers, from `first`, per sentence with any token, merging the windows it was split into."""
    words: dict[int, list[int]] = {}
    for example_id, positions in zip(encoded.example_ids.tolist(), encoded.decode_info, strict=True):
        words.setdefault(example_id, []).extend(word for word, _ in positions)
    label_ids = {label: i for i, label in enumerate(head_config.labels)}
    ids, example_ids, decode_info, labels = [], [], [], []
    for example_id, of_sentence in words.items():
        of_sentence.sort()
        if not of_sentence:
            continue
        ids.append(np.arange(first, first + len(of_sentence)))
        first += len(of_sentence)
        example_ids.append(example_id)
        decode_info.append([(word, position) for position, word in enumerate(of_sentence)])
        tags = examples[example_id].tags
        labels.append(np.array([-1 if tags is None else label_ids.get(tags[word], -1) for word in of_sentence]))
    return dataclasses.replace(
        encoded,
        ids=ids,
        segments=[np.zeros_like(each) for each in ids],
        example_ids=np.array(example_ids, int),
        decode_info=decode_info,
        token_labels=None if encoded.token_labels is None else labels,
    )
