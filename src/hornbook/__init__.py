"""Hornbook: pre-train, fine-tune, distil, evaluate and export language models.

    import hornbook

    model = hornbook.load("runs/first")
    model.fill_mask("The [MASK] sat on the mat.")

Submodules are imported on first use. Functions that train show a progress bar on a terminal and in notebooks;
`progress=False` turns it off.

One Ctrl-C (or SIGTERM, or `on_progress` that returns True) saves a checkpoint and stops the training; the same call
with `resume=True` continues it (`probe`, `baseline` and `label_curve` resume without it). A function that is stopped
raises `hornbook.Stopped`; `reproduce` and `embed_graph` return how far they came.
"""

import os

# Idle OpenMP threads sleep instead of spinning: spinning makes training several times slower when another process is
# busy (benchmarks/busy_neighbour.py). The runtimes read this when torch is imported; values set by the user are kept.
_PASSIVE_WAIT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
if not any(name in os.environ for name in (*_PASSIVE_WAIT, "GOMP_SPINCOUNT")):
    os.environ.update(_PASSIVE_WAIT)

__version__ = "0.1.0"

_MODULES = {
    "load": "hornbook.inference.load",
    "load_predictor": "hornbook.inference.predictor",
    "pipeline": "hornbook.inference.pipelines",
    "evaluate": "hornbook.inference.predictor",
    "explain": "hornbook.inference.explaining",
    "extract_features": "hornbook.inference.features",
    "build_index": "hornbook.inference.retrieval.building",
    "search": "hornbook.inference.retrieval.searching",
    "evaluate_retrieval": "hornbook.inference.retrieval.evaluation",
    "SearchIndex": "hornbook.inference.retrieval.searching",
    "check": "hornbook.runs.finetuning.checking",
    "finetune": "hornbook.runs.finetuning.finetune",
    "TextClassifier": "hornbook.runs.finetuning.estimator",
    "probe": "hornbook.evaluation.baselines.probe",
    "baseline": "hornbook.evaluation.baselines.baseline",
    "label_curve": "hornbook.evaluation.label_curve",
    "minimal_pairs": "hornbook.evaluation.minimal_pairs",
    "prompt": "hornbook.evaluation.prompting.prompt",
    "finetune_text": "hornbook.runs.finetuning.finetune_text",
    "pretrain": "hornbook.runs.pretraining.pretrain",
    "distill": "hornbook.runs.distillation.distill",
    "Stopped": "hornbook.train.job",
    "augment": "hornbook.runs.augmentation.copies",
    "export": "hornbook.deployment.export",
    "push": "hornbook.deployment.push",
    "compare": "hornbook.deployment.comparison",
    "reproduce": "hornbook.evaluation.experiments.runner",
    "train_tokenizer": "hornbook.text.training",
    "measure_fit": "hornbook.text.vocabulary_fit",
    "Tokenizer": "hornbook.text.tokenizer",
    "build_corpus": "hornbook.data.build",
    "build_web_corpus": "hornbook.data.web.build",
    "Corpus": "hornbook.data.corpus",
    "build_graph": "hornbook.graph.build",
    "Graph": "hornbook.graph.graph",
    "embed_graph": "hornbook.graph.embedding.training",
    "GraphVectors": "hornbook.graph.embedding.vectors",
    "write_report": "hornbook.report.page",
    "describe": "hornbook.report.info",
}
_WITH_PROGRESS_BAR = (
    "finetune",
    "probe",
    "baseline",
    "label_curve",
    "pretrain",
    "distill",
    "finetune_text",
    "reproduce",
    "embed_graph",
)
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'hornbook' has no attribute '{name}'")
    from importlib import import_module

    attribute = getattr(import_module(_MODULES[name]), name)
    if name in _WITH_PROGRESS_BAR:
        from hornbook.terminal import with_progress_bar

        attribute = with_progress_bar(attribute)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
