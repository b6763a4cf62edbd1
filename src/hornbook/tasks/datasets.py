"""The registry of published data sets and task kinds.

>>> find_task("SST2").metrics
('accuracy',)
"""

import difflib
import re

from hornbook.tasks.kinds import (
    KINDS,
    Choice,
    Classification,
    EntityTyping,
    Regression,
    Relation,
    Spans,
    Tagging,
)
from hornbook.tasks.reading import choices, coqa, marked, spans, tagging, texts
from hornbook.tasks.task import RegisteredTask, Task

BINARY = ("0", "1")
TWO_WAY = ("entailment", "not_entailment")
THREE_WAY = ("contradiction", "entailment", "neutral")
ANSWERS = ("f1", "exact")


def _glue(name: str, layout: texts.PublishedTable, metrics: tuple[str, ...], labels=(), **more) -> RegisteredTask:
    task_class = Regression if layout.problem_type == "regression" else Classification
    submissions = more.pop("submissions", {"test": f"{layout.folder}.tsv"})
    return RegisteredTask(name, task_class, layout, metrics, labels, submissions=submissions, **more)


def _custom(task_class: type[Task]) -> RegisteredTask:
    return RegisteredTask(task_class.kind, task_class, task_class.custom_layout, task_class.default_metrics)


MNLI_SUBMISSIONS = {"test": "MNLI-m.tsv", "test-mismatched": "MNLI-mm.tsv"}
REGISTERED = (
    _glue("cola", texts.COLA, ("matthews", "accuracy"), BINARY),
    _glue("sst-2", texts.SST2, ("accuracy",), BINARY),
    _glue("mrpc", texts.MRPC, ("f1", "accuracy"), BINARY, pos_label="1"),
    _glue("qqp", texts.QQP, ("f1", "accuracy"), BINARY, pos_label="1"),
    _glue("mnli", texts.MNLI, ("accuracy",), THREE_WAY, submissions=MNLI_SUBMISSIONS),
    _glue("qnli", texts.QNLI, ("accuracy",), TWO_WAY),
    _glue("rte", texts.RTE, ("accuracy",), TWO_WAY),
    _glue("wnli", texts.WNLI, ("accuracy",), BINARY),
    _glue("diagnostic", texts.DIAGNOSTIC, ("matthews",), THREE_WAY, submissions={"test": "AX.tsv"}),
    _glue("sts-b", texts.STSB, ("spearman", "pearson")),
    RegisteredTask("nsmc", Classification, texts.NSMC, ("accuracy",), BINARY),
    RegisteredTask("klue-nli", Classification, texts.KLUE_NLI, ("accuracy",), THREE_WAY),
    RegisteredTask("boolq", Classification, texts.BOOLQ, ("accuracy",), ("false", "true")),
    RegisteredTask("squad", Spans, spans.SQUAD, ANSWERS, learning_rate=5e-5),
    RegisteredTask(
        "squad2", Spans, spans.SQUAD2, ANSWERS, allows_no_answer=True, batch_size=48, learning_rate=5e-5, epochs=2
    ),
    RegisteredTask("korquad", Spans, spans.KORQUAD, ANSWERS),
    RegisteredTask("triviaqa", Spans, spans.TRIVIAQA, ANSWERS),
    RegisteredTask("coqa", Spans, coqa.COQA, ANSWERS, allows_no_answer=True),
    RegisteredTask("conll2003", Tagging, tagging.CONLL2003, ("entity_f1", "tag_accuracy")),
    RegisteredTask("conll2003-pos", Tagging, tagging.CONLL2003_POS, ("tag_accuracy",)),
    RegisteredTask("ud-pos", Tagging, tagging.UD_POS, ("tag_accuracy",)),
    RegisteredTask("swag", Choice, choices.SWAG, ("accuracy",), batch_size=16, learning_rate=2e-5),
    RegisteredTask("commonsenseqa", Choice, choices.COMMONSENSEQA, ("accuracy",)),
    RegisteredTask("codah", Choice, choices.CODAH, ("accuracy",)),
    RegisteredTask("ufet", EntityTyping, marked.UFET, ("loose_macro_f1", "loose_micro_f1", "exact_match")),
    RegisteredTask("semeval2010-task8", Relation, marked.SEMEVAL, ("macro_f1", "accuracy")),
    # Task kinds for users' own files.
    *map(_custom, KINDS.values()),
    RegisteredTask("spans-or-none", Spans, spans.CustomSpans(allows_no_answer=True), ANSWERS, allows_no_answer=True),
)
KNOWN: dict[str, RegisteredTask] = {entry.name: entry for entry in REGISTERED}
OTHER_SPELLINGS = {
    "sst-2": ("sst",),
    "sts-b": ("stsbenchmark",),
    "diagnostic": ("ax", "gluediagnostic"),
    "klue-nli": ("klue",),
    "squad": ("squad1", "squad11", "squadv1", "squadv11"),
    "squad2": ("squad20", "squadv2", "squadv20"),
    "korquad": ("korquad1", "korquad10"),
    "conll2003": ("conll", "conll03", "conll2003ner"),
    "classification": ("textclassification", "sequenceclassification", "sentiment", "sentimentanalysis"),
    "tagging": ("ner", "pos", "tokenclassification"),
    "ud-pos": ("ud", "udewt"),
    "commonsenseqa": ("csqa",),
    "multi-label": ("multilabelclassification",),
    "spans": ("questionanswering",),
    "choice": ("multiplechoice",),
    "entity-typing": ("typing",),
    "relation": ("relationclassification", "relationextraction"),
    "semeval2010-task8": ("semeval", "semeval2010", "semevaltask8"),
    "similarity": ("sentencesimilarity", "embeddings", "search"),
}


def find_task(name: str) -> RegisteredTask:
    """The data set or task kind of this name, in any common spelling."""
    others = {spelling: name for name, several in OTHER_SPELLINGS.items() for spelling in several}
    spellings = {_letters(each): each for each in KNOWN} | others
    known_name = spellings.get(_letters(name))
    if known_name:
        return KNOWN[known_name]
    near = difflib.get_close_matches(_letters(name), spellings, n=1, cutoff=0.5)
    hint = f"did you mean {spellings[near[0]]}?" if near else f"the known ones are {', '.join(KNOWN)}"
    raise ValueError(f"unknown task '{name}'; {hint}")


def register(task_class: type[Task]) -> None:
    """Makes a kind of task known under its name, also for users' own files (`--task NAME`)."""
    KINDS[task_class.kind], KNOWN[task_class.kind] = task_class, _custom(task_class)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
