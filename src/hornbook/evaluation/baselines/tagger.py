"""The tagger of the feature-based approach: a two-layer BiLSTM, 768 units per direction, on frozen features of words.

The features of all words are written once to a file. A word's row number in it serves as its token id, so that the
tagger uses the training loop and the objective of fine-tuning.

Shapes: W words in the file, T words in a batch, N sentences, S longest sentence, F feature width, H BiLSTM output,
L tags.
"""

import dataclasses
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.data.shards import load_array
from hornbook.evaluation.baselines.baseline import finish
from hornbook.files import refusing_damage, replacing, write_tensors
from hornbook.inference.features import Layers, frozen_sequences
from hornbook.lifecycle.run_folder import Log
from hornbook.models.head_config import HeadConfig
from hornbook.models.heads import to_padded
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.runs.finetuning.job import TaskBatches, with_steps
from hornbook.runs.finetuning.scores import TaskResult
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.evaluation import Evaluation, evaluate_split
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.records import Example
from hornbook.train.job import OnProgress, TrainingJob
from hornbook.train.loop import train
from hornbook.train.objective import TrainingModule
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime, configure_torch

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
