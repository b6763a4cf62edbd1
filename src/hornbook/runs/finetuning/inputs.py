"""The inputs of a fine-tuning run: the request, the pre-trained model with its tokenizer, the data, the settings, and
the teacher."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from hornbook import config as configuration
from hornbook.config import parsed
from hornbook.data.problems import problem_lines
from hornbook.devices import chosen_device
from hornbook.graph.linking import EntityLinker, open_linker
from hornbook.inference.load import load
from hornbook.interop.files import checked_config_file
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import LANGUAGES, builtin_for, model_folder
from hornbook.interop.sentence_transformers import EmbeddingSettings, read_embedding_settings
from hornbook.interop.vocabulary import with_new_tokens
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.models.ernie import Ernie
from hornbook.models.gpt import Gpt
from hornbook.models.head_config import HeadConfig
from hornbook.reasoning.grounding import Grounder, open_grounder
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.layers import has_dropout, number_scale, with_dropout
from hornbook.runs.finetuning.published import rounded, settings_for
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.settings import FinetuneSettings, TaskSettings
from hornbook.tasks.datasets import find_task
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.kinds.marked import with_entities
from hornbook.tasks.kinds.regression import Regression
from hornbook.tasks.kinds.similarity import Similarity, padded_texts
from hornbook.tasks.reading.read import hold_out, read
from hornbook.tasks.records import DataSet, Example
from hornbook.tasks.spec import TaskSpec, head_config_for, make_task
from hornbook.tasks.summary import hints, summarize, summary_lines
from hornbook.tasks.task import RegisteredTask, Task
from hornbook.text.task_tokens import with_gpt1_format, with_mention_marks, with_pad_token
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.checkpoint import unfinished_note
from hornbook.train.randomness import sample_of, seed_of
from hornbook.train.runtime import choose_runtime

SIMCSE_DROPOUT = 0.02  # the 0.1 of Gao et al. 2021 harms a model that was pre-trained without dropout (RESULTS.md)


@dataclass(frozen=True)
class LabelledTask:
    """The labelled data of a task. The no-answer threshold is chosen on `threshold_split`, held out of train."""

    registered: RegisteredTask
    data: DataSet
    settings: FinetuneSettings
    spec: TaskSpec
    train: list[Example]
    threshold_split: list[Example]

    @cached_property
    def dev(self) -> list[Example]:
        """The dev examples that can be scored."""
        return self._scored("dev")

    def other_splits(self) -> dict[str, list[Example]]:
        """The examples that can be scored of each split besides train and dev; splits with too few are left out."""
        splits = {name: self._scored(name) for name in self.data.splits if name not in ("train", "dev")}
        least = KINDS[self.data.kind].min_scored
        return {name: examples for name, examples in splits.items() if len(examples) >= least}

    def _scored(self, name: str) -> list[Example]:
        return [example for example in self.data.splits[name] if is_scored(example, self.registered)]


@dataclass(frozen=True)
class FinetuneInputs(LabelledTask):
    """Everything a run needs, read once for all trials of a sweep.

    `copies` are augmented examples that are added to train (`runs.augmentation`). `projections` map a student's hidden
    states to its teacher's width, as learned in an earlier stage.
    """

    request: FinetuneRequest
    pretrained: nn.Module
    tokenizer: Tokenizer
    teacher: Teacher | None = None
    copies: list[Example] | None = None
    projections: Mapping[str, Tensor] = field(default_factory=dict)
    folder: Path | None = None  # shared by all trials, for files that are made once
    grounder: Grounder | None = None  # the knowledge graph that questions are grounded in
    linker: EntityLinker | None = None  # of an ERNIE: finds the entities that texts mention
    prescribed_length: int | None = None  # by the folder of a model that embeds texts

    @property
    def max_length(self) -> int:
        return self._max_length(self.pretrained.config.max_positions)

    def _max_length(self, max_positions: int) -> int:
        requested = self.settings.task.max_length or self.prescribed_length
        return min(max_positions, requested or KINDS[self.data.kind].max_length or max_positions)

    def encode(self, examples: list[Example]) -> EncodedExamples:
        if self.linker is not None:
            examples = with_entities(examples, self.linker, self.pretrained.has_vector)
        encoded = self.spec.task.encode(examples, self.tokenizer, self.max_length)
        return encoded if self.grounder is None else self.grounder.attach(encoded, examples)

    @property
    def train_examples(self) -> list[Example]:
        return [*self.train, *(self.copies or [])]

    def encoded_train_for(self, tokenizer: Tokenizer, max_positions: int) -> EncodedExamples:
        """The training examples encoded with another model's tokenizer and length limit."""
        return self.spec.task.encode(self.train_examples, tokenizer, self._max_length(max_positions))

    def with_request(self, request: FinetuneRequest) -> "FinetuneInputs":
        """The same data and model with the settings of another request, such as its learning rate or seed."""
        request = replace(request, model=request.model or self.request.model)
        settings = _settings(self.registered, self.pretrained, self.data, request, ignore)
        train, threshold_split = training_split(self.data, self.registered, settings)
        return self.replaced(request=request, settings=settings, train=train, threshold_split=threshold_split)

    def replaced(self, **changes: Any) -> "FinetuneInputs":
        """A copy with other values, which shares the encoded dev split and, if it is the same, the training split. They
        are encoded here if necessary, so that all copies of these inputs share them."""
        other = replace(self, **changes)
        if other.train == self.train:
            vars(other)["encoded_train"] = self.encoded_train
        vars(other)["encoded_dev"] = self.encoded_dev
        return other

    @cached_property
    def encoded_train(self) -> EncodedExamples:
        """The training examples as model inputs; with `task.embedding_teacher`, labelled with its vectors."""
        encoded = self.encode(self.train_examples)
        if self.settings.task.embedding_teacher is None:
            return encoded
        texts = [text for example in self.train_examples for text in padded_texts(example, encoded.group_size)]
        unique = list(dict.fromkeys(texts))
        device = choose_runtime(self.settings.runtime, 0.0).device
        teacher = load(self.settings.task.embedding_teacher, device=str(device))
        vectors = dict(zip(unique, teacher.embed(unique, normalize=True), strict=True))
        return replace(encoded, labels=np.stack([vectors[text] for text in texts]))

    @cached_property
    def encoded_dev(self) -> EncodedExamples:
        return self.encode(self.dev)


def check_request(request: FinetuneRequest, needs_folder: bool = True) -> None:
    """Raises a `ValueError` for an unknown task, setting or device, or if there is no folder of the model
    (`needs_folder`), before the data are read."""
    overrides = request.all_overrides()
    settings_for(find_task(request.task), None, overrides, request.teacher is not None)
    chosen_device(str(overrides.get("runtime.device", "auto")))
    if request.model is not None and needs_folder:
        checked_config_file(model_folder(request.model))


def read_labelled(request: FinetuneRequest, data: Any, log: Log) -> tuple[RegisteredTask, DataSet]:
    """The data of a request. Raises a `ValueError` if there is nothing to train or to validate on."""
    registered = find_task(request.task)
    seed = parsed(str(request.all_overrides().get("runtime.seed", 0)), int, "runtime.seed")
    options = {name: getattr(request, name) for name in ("text", "pair", "label", "delimiter", "encoding", "strict")}
    dataset = read(request.task, data, **options, seed=seed)
    task_class, dataset = KINDS[dataset.kind], replace(dataset, notes=tuple(hints(dataset)))
    for message in (*dataset.messages, *problem_lines(dataset.problems.to_dict()), *dataset.notes):
        log(message)
    if not dataset.splits.get("train"):
        if isinstance(data, str | Path) and Path(data).expanduser().is_file():
            split = next(iter(dataset.splits))
            raise ValueError(
                f"{data} is read as the {split} split because of its name: rename it, or give a folder with a train "
                "file"
            )
        raise ValueError("the data has no training split: add a train file next to the dev file")
    task_class.refuse_training(dataset)
    dev = dataset.splits.get("dev", [])
    num_scored = sum(is_scored(example, registered) for example in dev)
    if not num_scored:
        raise ValueError("the data has no dev examples to validate on: give a dev file with labels, or more examples")
    if num_scored < task_class.min_scored:
        raise ValueError(
            f"dev has {num_scored} example with a label, and {task_class.kind} is scored on at least "
            f"{task_class.min_scored}: give more examples"
        )
    if num_scored < len(dev):
        unscored = f"{len(dev) - num_scored:,} examples of dev have no label or no text and are not scored"
        log(unscored + task_class.unscored_hint)
    return registered, dataset


def is_scored(example: Example, registered: RegisteredTask) -> bool:
    """Whether an example has a text and a label that the task can predict."""
    return registered.task_class.is_scored(example, registered.allows_no_answer)


def open_inputs(
    request: FinetuneRequest,
    data: Any,
    log: Log,
    loaded: tuple[nn.Module, Tokenizer] | None = None,
    teacher: Teacher | None = None,
) -> FinetuneInputs:
    """Reads data and model, resolves all settings, and logs what was inferred and which rows were bad. `loaded` is the
    model with its tokenizer if it is already loaded."""
    check_request(request, needs_folder=loaded is None)
    registered, dataset = _read_and_summarize(request, data, log)
    if request.model is None:
        model = builtin_for(text for example in dataset.splits["train"] for text in example.texts)
        log(f"no model is named: fine-tuning the built-in model '{model}' ({LANGUAGES[model]})")
        request = replace(request, model=model)
    if loaded is None:
        folder = model_folder(request.model)
        if note := unfinished_note(folder):
            log(note)
        loaded = load_folder(folder)
    pretrained, tokenizer = loaded
    settings = _settings(registered, pretrained, dataset, request, log)
    pretrained, tokenizer = with_task_format(pretrained, tokenizer, settings.task, KINDS[dataset.kind].marks)
    head_config = head_config_for(
        dataset,
        layers=settings.task.head,
        pair_encoding=settings.task.pair_encoding,
        has_answer_classifier=registered.allows_no_answer and settings.task.no_answer == "classifier",
    )
    _check_embedding_teacher(settings.task, head_config, dataset)
    embedding = EmbeddingSettings()
    if head_config.output_type.is_embedding:
        embedding = _embedding_settings(model_folder(request.model), request, settings, log)
        head_config = replace(head_config, pooling=settings.task.pooling or embedding.pooling)
    grounder = None
    if settings.reason.method is not None:
        grounder = _grounder(request, head_config, settings, log)
        head_config = replace(head_config, graph=grounder.kagnet_config)
    if registered.name == Regression.kind:
        head_config = replace(head_config, scale=number_scale([each.label for each in dataset.splits["train"]]))
    spec = replace(make_task(registered, dataset, head_config), reason=None if grounder is None else grounder.record())
    linker = _linker(pretrained, settings.task.graph, spec.task, log)
    if linker is not None:
        spec = replace(spec, graph={"folder": str(linker.graph.folder.resolve()), "fingerprint": linker.fingerprint})
    train, threshold_split = training_split(dataset, registered, settings)
    return FinetuneInputs(
        registered=registered,
        data=dataset,
        settings=settings,
        spec=spec,
        train=train,
        threshold_split=threshold_split,
        request=request,
        pretrained=pretrained,
        tokenizer=tokenizer,
        teacher=teacher,
        grounder=grounder,
        linker=linker,
        prescribed_length=embedding.max_length,
    )


def _read_and_summarize(request: FinetuneRequest, data: Any, log: Log) -> tuple[RegisteredTask, DataSet]:
    """The data of a request; logs its summary, whose notes are added to those of the data."""
    registered, dataset = read_labelled(request, data, log)
    lines = summary_lines(summarize(dataset))
    for line in lines:
        log(line)
    return registered, replace(dataset, notes=(*dataset.notes, *(line for line in lines if line.startswith("note"))))


def _check_embedding_teacher(settings: TaskSettings, head_config: HeadConfig, data: DataSet) -> None:
    if settings.embedding_teacher is None:
        return
    if not head_config.output_type.is_embedding:
        raise ValueError("task.embedding_teacher is for the task similarity: use hornbook distill for other tasks")
    if data.splits["train"][0].score is not None:
        raise ValueError(
            "the training rows have scores, which a task.embedding_teacher replaces: leave out one of the two"
        )


def _linker(pretrained: nn.Module, graph: str | None, task: Task, log: Log) -> EntityLinker | None:
    """The linker of texts to the graph of an ERNIE; raises a `ValueError` if it cannot be used."""
    if graph is None:
        if isinstance(pretrained, Ernie) and pretrained.config.fusion:
            log("note: without graph= the model reads no entities")
        return None
    if task.head_config.output == "choice":
        raise ValueError("graph= has no effect without reason=: give reason='kagnet', or leave it out")
    if not task.marks:
        raise ValueError(
            f"graph= is for entity-typing, relation and multiple choice, not for {task.kind}: leave it out"
        )
    return open_linker(graph, pretrained)


def _grounder(request: FinetuneRequest, head_config: HeadConfig, settings: FinetuneSettings, log: Log) -> Grounder:
    if head_config.output != "choice":
        raise ValueError(f"reason= is for multiple choice, and {request.task} is not: leave out reason= and graph=")
    if request.teacher is not None:
        raise ValueError("a model that reads a knowledge graph cannot be distilled: use hornbook finetune instead")
    grounder = open_grounder(settings.reason)
    log(f"reading paths of at most {settings.reason.hops} edges in {grounder.graph.folder}")
    if grounder.vectors is None:
        log(
            "note: there are no vectors of the graph, so concepts have random ones and paths are not scored; make some "
            "with 'hornbook graph embed' and give vectors="
        )
    return grounder


def _settings(
    registered: RegisteredTask, pretrained: nn.Module, data: DataSet, request: FinetuneRequest, log: Log
) -> FinetuneSettings:
    """The settings of a request. Single texts are learned by two dropout masks of one text (SimCSE), so a model without
    dropout gets some for them. The loss of several labels is a mean over labels, so their gradients get smaller with
    the number of labels, and the eps of the optimizer with them."""
    overrides, train = request.all_overrides(), data.splits["train"]
    settings = settings_for(registered, pretrained, overrides, request.teacher is not None, len(train), log)
    if registered.task_class.problem_type == "multi_label_classification" and "optimizer.eps" not in overrides:
        eps = rounded(settings.optimizer.eps / len(data.labels))
        settings = configuration.with_overrides(settings, {"optimizer.eps": eps})
        log(f"optimizer.eps={eps:g}: the loss is a mean over {len(data.labels):,} labels")
    needs_dropout = (
        registered.kind == Similarity.kind and train[0].pair is None and settings.task.embedding_teacher is None
    )
    if not needs_dropout or has_dropout(with_dropout(pretrained.config, settings.layers.dropout)):
        return settings
    if "layers.dropout" in overrides:
        raise ValueError("single texts are learned by two dropout masks of one text: leave out layers.dropout=0")
    log(f"layers.dropout={SIMCSE_DROPOUT}: single texts need two dropout masks, and the model has no dropout")
    return configuration.with_overrides(settings, {"layers.dropout": SIMCSE_DROPOUT})


def _embedding_settings(
    folder: Path, request: FinetuneRequest, settings: FinetuneSettings, log: Log
) -> EmbeddingSettings:
    """The pooling and the maximum length that the folder of a model prescribes, for what was not requested."""
    if request.teacher is not None:
        raise ValueError(
            "hornbook distill does not support similarity: use hornbook finetune with task.embedding_teacher=MODEL"
        )
    embedding = read_embedding_settings(folder)
    embedding.refuse_lower_case(folder)
    if settings.task.pooling is None:
        log(embedding.description)
    if any(embedding.prompts.values()):
        log("note: training does not put the prompts of the model before texts, and the run has none")
    return embedding


def refuse_without_baselines(task: str) -> None:
    """Raises a `ValueError` if shallow models and probes cannot learn a task."""
    if not find_task(task).task_class.has_baselines:
        raise ValueError(f"there are no baselines and probes for {task}: score other models with hornbook evaluate")


def open_labelled(request: FinetuneRequest, data: Any, log: Log) -> LabelledTask:
    """Reads the examples that fine-tuning would train on for the same request, without a model."""
    refuse_without_baselines(request.task)
    check_request(request)
    registered, dataset = read_labelled(request, data, log)
    settings = settings_for(registered, None, request.all_overrides())
    spec = make_task(registered, dataset, head_config_for(dataset))
    return LabelledTask(registered, dataset, settings, spec, *training_split(dataset, registered, settings))


def with_task_format(
    pretrained: nn.Module, tokenizer: Tokenizer, settings: TaskSettings, marks: tuple[str, ...] = ()
) -> tuple[nn.Module, Tokenizer]:
    """The model and the tokenizer for the task's inputs. An encoder's tokenizer only gets the `marks` of the task. A
    GPT's gets a padding token, which `transformers` needs, and with `task.format=gpt1` GPT-1's start, delimiter and
    extract tokens. The embeddings of new tokens are newly initialised."""
    with_marks = with_mention_marks(tokenizer, marks)
    if with_marks is not tokenizer:
        pretrained, tokenizer = with_new_tokens(pretrained, tokenizer, with_marks, seed_of("new tokens")), with_marks
    if "clm" not in pretrained.head_factories:
        for name, default in (("format", "tokenizer"), ("lm_weight", 0.0), ("direction", None)):
            if getattr(settings, name) != default:
                raise ValueError(f"task.{name} is for GPTs, and the model is {pretrained.described()}: leave it out")
        return pretrained, tokenizer
    pretrained = _in_direction(pretrained, settings)
    adapted = with_pad_token(with_gpt1_format(tokenizer) if settings.format == "gpt1" else tokenizer)
    if adapted.vocab_size == tokenizer.vocab_size and adapted.pad_id == pretrained.config.pad_id:
        return pretrained, adapted
    return with_new_tokens(pretrained, tokenizer, adapted, seed_of("new tokens")), adapted


def _in_direction(pretrained: Gpt, settings: TaskSettings) -> Gpt:
    """A hybrid GPT in the attention direction of the task; any other one as it is."""
    direction = settings.direction or ("bidirectional" if pretrained.config.is_hybrid else "causal")
    if direction == "bidirectional" and not pretrained.config.is_hybrid:
        raise ValueError(
            "task.direction=bidirectional is for a hybrid model, which was pre-trained with objective.mlm_fraction: "
            "leave it out"
        )
    if direction == "bidirectional" and settings.lm_weight:
        raise ValueError(
            "task.lm_weight predicts next tokens, which a model that reads in both directions sees: set "
            "task.direction=causal, or leave task.lm_weight out"
        )
    return pretrained.with_direction(direction)


def training_split(
    data: DataSet, registered: RegisteredTask, settings: FinetuneSettings
) -> tuple[list[Example], list[Example]]:
    """The examples to train on, and those of train that are held out to choose a threshold on."""
    train, held_out = data.splits["train"], []
    if registered.allows_no_answer and settings.task.threshold_fraction > 0 and len(train) > 20:
        train, held_out, _ = hold_out(train, settings.task.threshold_fraction, seed=0)
    if settings.examples is not None:
        train = sample_of(train, settings.examples, "examples")
    if settings.task.swapped_pairs:
        if not train[0].has_pair:
            raise ValueError("task.swapped_pairs is for pairs of texts, and these examples have none: leave it out")
        train = [example for pair in train for example in (pair, replace(pair, text=pair.pair, pair=pair.text))]
    return train, held_out
