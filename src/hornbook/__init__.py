"""Hornbook: raw text to a pre-trained language model, and the model to the people who use it.

    import hornbook

    model = hornbook.load("runs/first")
    model.fill_mask("The [MASK] sat on the mat.")

Nothing heavy is imported until it is used. Functions that train show a progress bar on a terminal and in notebooks;
`progress=False` turns it off.
"""

import os

# Idle OpenMP threads sleep instead of spinning: beside a busy neighbour, spinning makes training several times slower
# (benchmarks/busy_neighbour.py). The runtimes read this when torch is imported; what a person has set stays.
_WAITING = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
if not any(name in os.environ for name in (*_WAITING, "GOMP_SPINCOUNT")):
    os.environ.update(_WAITING)

__version__ = "0.1.0"

_WHERE = {
    "load": "hornbook.infer.opening",
    "load_predictor": "hornbook.infer.predictor",
    "evaluate": "hornbook.infer.opening",
    "extract_features": "hornbook.infer.features",
    "check": "hornbook.finetuning.checking",
    "finetune": "hornbook.finetuning.api",
    "probe": "hornbook.finetuning.probe",
    "baseline": "hornbook.finetuning.baselines",
    "label_curve": "hornbook.finetuning.curve",
    "prompt": "hornbook.prompting.run",
    "finetune_text": "hornbook.prompting.teaching",
    "pretrain": "hornbook.pretraining.run",
    "distill": "hornbook.distillation.run",
    "augment": "hornbook.augmentation.copies",
    "export": "hornbook.deployment.export",
    "compare": "hornbook.deployment.comparison",
    "reproduce": "hornbook.experiments.runner",
    "train_tokenizer": "hornbook.text.training",
    "measure_fit": "hornbook.text.fit",
    "Tokenizer": "hornbook.text.tokenizer",
    "build_corpus": "hornbook.data.build",
    "Corpus": "hornbook.data.corpus",
    "write_report": "hornbook.report.page",
    "describe": "hornbook.report.info",
}
_WITH_BAR = ("finetune", "probe", "baseline", "label_curve", "pretrain", "distill", "finetune_text", "reproduce")
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str):
    if name not in _WHERE:
        raise AttributeError(f"module 'hornbook' has no attribute '{name}'")
    from importlib import import_module

    found = getattr(import_module(_WHERE[name]), name)
    if name in _WITH_BAR:
        from hornbook.terminal import with_bar

        found = with_bar(found)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
