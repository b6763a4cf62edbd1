"""The record of a pre-training run: the request and all resolved settings, from which it is resumed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hornbook.config import LARGEST_SEED, MAX_COUNT, setting
from hornbook.files import sha256
from hornbook.graph.embedding.vectors import VECTORS_FILE
from hornbook.lifecycle.requests import Difference, RunRequest, request_differences
from hornbook.lifecycle.run_folder import RunFolder, require
from hornbook.models.transformer import count_parameters
from hornbook.objectives.vocabulary_loss import unigram_baseline
from hornbook.runs.distillation.teacher import Teacher, refuse_other_teacher
from hornbook.runs.model_files import saved_models
from hornbook.runs.pretraining.assembly import PreparedRun
from hornbook.runs.pretraining.batches import Corpora, folder_and_weight, mixed_token_counts
from hornbook.runs.pretraining.settings import settings_in
from hornbook.train.settings import MAX_BATCH_TOKENS, MINUTES_PER_YEAR


@dataclass(frozen=True)
class PretrainRequest(RunRequest):
    """The arguments of the command, as the user gave them."""

    preset: str
    corpora: list[str] = field(default_factory=list)
    init_from: str | None = None
    steps: int | None = setting(None, "number of optimizer steps", low=1, high=MAX_COUNT)
    tokens: int | None = setting(None, "training tokens, instead of steps", low=1, high=10**15)
    minutes: float | None = setting(None, "training time in minutes, instead of steps", above=0, high=MINUTES_PER_YEAR)
    batch_tokens: int | None = setting(None, "tokens per batch", low=8, high=MAX_BATCH_TOKENS)
    seed: int | None = setting(None, "random seed", low=0, high=LARGEST_SEED)
    teacher: str | None = None
    recipe: Literal["published", "budget"] | None = setting(None, "published settings, or those for a short run")
    graph: str | None = None
    vectors: str | None = None

    @property
    def has_default_duration(self) -> bool:
        """Whether the run has the number of steps of its preset."""
        lengths = (self.steps, self.tokens, self.minutes, self.overrides.get("schedule.steps"))
        return all(length is None for length in lengths)

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(length is not None for length in (self.steps, self.tokens, self.minutes)) > 1:
            raise ValueError("give only one of steps=, tokens= and minutes=")

    def named_corpora(self) -> list[tuple[str, float]]:
        return [folder_and_weight(corpus) for corpus in self.corpora]


def write_run(
    folder: RunFolder, request: PretrainRequest, prepared: PreparedRun, recipe: str, teacher: Teacher | None = None
) -> None:
    settings, job, corpora = prepared.settings, prepared.job, prepared.corpora
    entries = [
        {
            "folder": corpus.origin,
            "weight": weight,
            "fingerprint": corpus.fingerprint,
            "documents": corpus.num_documents,
            "tokens": corpus.num_tokens,
        }
        for corpus, weight in corpora
    ]
    inputs = {"corpora": entries}
    if teacher is not None:
        inputs["teacher"] = teacher.to_record()
    if settings.reads_entities:
        inputs |= {"graph": settings.model.graph, "vectors": vectors_fingerprint(request)}
    held_out = [batch.to(prepared.runtime.device) for batch in prepared.held_out]
    counts = mixed_token_counts(corpora, settings.reads_documents)
    folder.write_record(
        request.to_dict(),
        inputs,
        settings,
        prepared.runtime.to_record(),
        preset=request.preset,
        recipe=recipe,
        family=job.model.model_type,
        parameters=count_parameters(job.model),
        kept_parameters=count_parameters(saved_models(job.model)[""]),
        terms=job.objective.weights,
        heads=list(job.model.heads),
        unigram_baseline=unigram_baseline(job.objective, held_out, counts) if held_out else {},
        planned_flops=settings.planned_flops(teacher=teacher.model.config if teacher else None),
        **{"from": request.init_from},
    )


def check_record(record: dict) -> None:
    """Reads the values that a resumed run needs."""
    PretrainRequest(**record["request"])
    list(record["terms"]), list(record["heads"]), str(record["preset"]), str(record["recipe"])
    for entry in record["inputs"]["corpora"]:
        Path(entry["folder"]), float(entry["weight"]), str(entry["fingerprint"])
    require(record, "runtime.threads", "runtime.compiles")
    float(record["planned_flops"])
    record["request"]["overrides"].items()
    settings_in(record)


def refuse_other_request(folder: RunFolder, record: dict, request: PretrainRequest) -> None:
    """Raises a ValueError if an option of `request` differs from the recorded one; others are skipped."""
    recorded = record["request"] | {"corpora": request.corpora, "recipe": record["recipe"]}
    differences = request_differences(recorded, request, settings_in(record))
    requested = request.named_corpora()
    started = [(entry["folder"], entry["weight"]) for entry in record["inputs"]["corpora"]]
    # Their paths may differ, as corpora may have moved: `refuse_other_inputs` compares the contents.
    if requested and [weight for _, weight in requested] != [weight for _, weight in started]:
        texts = (", ".join(f"{path}:{weight:g}" for path, weight in corpora) for corpora in (started, requested))
        differences.append(Difference("corpora", *texts))
    folder.refuse(differences)


def refuse_other_inputs(folder: RunFolder, record: dict, corpora: Corpora, teacher: Teacher | None) -> None:
    for (corpus, _), entry in zip(corpora, record["inputs"]["corpora"], strict=True):
        folder.refuse_other_input(f"the corpus {corpus.origin}", entry["fingerprint"], corpus.fingerprint)
    if teacher is not None:
        refuse_other_teacher(folder, record, teacher)


def vectors_fingerprint(request: PretrainRequest) -> str | None:
    return None if request.vectors is None else sha256(Path(request.vectors) / VECTORS_FILE)
