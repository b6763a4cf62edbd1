"""The settings of a fine-tuning run for its task, its model and the size of its data: the published values or, for
sizes between the published ones, those that were measured to be best."""

from typing import Any

from hornbook import config as configuration
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.models.electra import Electra
from hornbook.models.gpt import Gpt1
from hornbook.models.transformer import BASE_WIDTH, Transformer
from hornbook.objectives.distillation.matching import StageRecipe
from hornbook.runs.finetuning.settings import STAGE_GROUPS, FinetuneSettings, TaskDistillationSettings, for_stage
from hornbook.tasks.task import RegisteredTask
from hornbook.train.settings import OptimizerSettings

BASE_LR, LARGE_LR = 5e-5, 2e-5  # of base and large models
SEARCHED_LRS = (5e-5, 4e-5, 3e-5, 2e-5)  # of `lr_search`, as published; scaled with the model's width
GRAPH_LR = 1e-3  # of the layers that read a knowledge graph, as published for KagNet
SMALL_WIDTH, LARGE_WIDTH = 256, 1024  # of ELECTRA-small and BERT-large
MANY_EXAMPLES, FEW_EXAMPLES = 50_000, 6_000  # for an ELECTRA of a size between the published ones
MAX_LR = 1e-3
MIN_STEPS, MAX_EPOCHS = 300, 10  # small custom data sets get more epochs, up to at least this many steps
EARLIER_EPOCHS = 10.0  # epochs of a stage before the last whose recipe does not set them
LARGE_DATA = 100_000  # examples, as in MNLI, QQP and QNLI: TinyBERT halved the epochs of its first stage for these


def width_factor(width: int) -> float:
    """Factor on the learning rate of narrow models: one of width 384 learns nothing at 5e-5, but does at 2e-4."""
    return (BASE_WIDTH / width) ** 2 if width < BASE_WIDTH else 1.0


def default_lr(registered: RegisteredTask, width: int) -> float:
    published = registered.learning_rate or (LARGE_LR if width >= LARGE_WIDTH else BASE_LR)
    return rounded(min(MAX_LR, published * width_factor(width)))


def searched_lrs(width: int) -> list[float]:
    """The published learning rates of `lr_search`, raised by one factor for narrow models, to at most `MAX_LR`."""
    factor = min(width_factor(width), MAX_LR / max(SEARCHED_LRS))
    return [rounded(lr * factor) for lr in SEARCHED_LRS]


def rounded(lr: float) -> float:
    return float(f"{lr:.3g}")


def settings_for(
    registered: RegisteredTask,
    pretrained: Transformer | None,
    overrides: dict,
    has_teacher: bool = False,
    num_examples: int | None = None,
    log: Log = ignore,
) -> FinetuneSettings:
    """The published settings for a task and the model's family, with overrides by dotted name. If the family does not
    set `optimizer.lr`, it depends on the model's width. Some depend on the number of training examples
    (`num_examples`): a user's own data of few examples gets more epochs. Without a model: the settings of BERT-base.
    Logs those that are not the defaults of the task, each with the reason."""
    width = BASE_WIDTH if pretrained is None else pretrained.config.width
    settings = (TaskDistillationSettings if has_teacher else FinetuneSettings)(
        epochs=float(registered.epochs),
        batch_size=registered.batch_size,
        optimizer=OptimizerSettings(lr=default_lr(registered, width)),
    )
    configuration.refuse_unused(settings, overrides)
    published = {} if pretrained is None else _family_settings(pretrained, registered.name)
    published = {name: each for name, each in published.items() if configuration.why_unused(settings, name) is None}
    measured = {}
    if num_examples is not None:
        examples = {name: value for name, value in overrides.items() if name == "examples"}
        num_examples = min(num_examples, configuration.with_overrides(settings, examples).examples or num_examples)
        if pretrained is not None and not has_teacher:
            measured = _measured_settings(pretrained, registered.is_custom, num_examples)
    chosen = published | measured
    if isinstance(settings, TaskDistillationSettings):
        settings = _in_stages(settings, chosen, overrides, width, num_examples)
    else:
        settings = _in_one_stage(settings, chosen, overrides, num_examples if registered.is_custom else None)
    published = {name: value for name, value in published.items() if name not in measured}
    for why, values in (("as published for", published), ("measured to be best for this kind of", measured)):
        if texts := [f"{name}={value}" for name, value in values.items() if name not in overrides]:
            log(f"{why} {pretrained.model_type}: {', '.join(texts)}")
    if "optimizer.lr" not in chosen | overrides and width_factor(width) > 1:
        log(f"learning rate {settings.optimizer.lr:g}: higher than the published one, as the model is {width} wide")
    if settings.epochs > chosen.get("epochs", registered.epochs) and "epochs" not in overrides:
        why = f"more than the published {registered.epochs}, as there are few training examples"
        log(f"{settings.epochs:g} epochs: {why}")
    return settings


def _in_one_stage(settings: FinetuneSettings, chosen: dict, overrides: dict, num_own: int | None) -> FinetuneSettings:
    """The settings of a run without a teacher: the `chosen` ones with the user's overrides. If there are only few
    (`num_own`) training examples of the user's own, they are read more often. Layers that read a knowledge graph have
    a learning rate of their own."""
    settings = configuration.with_overrides(settings, chosen | overrides)
    if num_own is not None and "epochs" not in overrides:
        epochs = min(MAX_EPOCHS, round(MIN_STEPS * settings.batch_size / num_own))
        settings = configuration.with_overrides(settings, {"epochs": max(settings.epochs, float(epochs))})
    if settings.reason.method is not None and "layers.head_lr_ratio" not in chosen | overrides:
        ratio = max(1.0, rounded(GRAPH_LR / settings.optimizer.lr))
        settings = configuration.with_overrides(settings, {"layers.head_lr_ratio": ratio})
    return settings


def _in_stages(
    settings: TaskDistillationSettings, family: dict, overrides: dict, width: int, num_examples: int | None
) -> TaskDistillationSettings:
    """The settings with those of each stage of the recipe. The settings of the model's `family` and the user's
    overrides hold in all stages, except for `epochs`, which is that of the last stage; `stages.1.NAME` overrides a
    setting in one stage."""
    for_all = {name: value for name, value in overrides.items() if not name.startswith("stages.")}
    by_stage = {name.removeprefix("stages."): value for name, value in overrides.items() if name not in for_all}
    recipe_overrides = {name: value for name, value in for_all.items() if name.startswith("objective.")}
    objective = configuration.with_overrides(settings, recipe_overrides).objective
    *earlier, last = objective.stages(is_task=True)
    _refuse_unknown_stages(by_stage, len(earlier) + 1)
    for_all = family | for_all
    for_last = for_stage(by_stage, len(earlier) + 1)
    settings = configuration.with_overrides(settings, _published_settings(last, width) | for_all | for_last)
    stages: dict[str, Any] = {}
    for number, recipe in enumerate(earlier, 1):
        stage = {"epochs": EARLIER_EPOCHS} | _published_settings(recipe, width)
        if num_examples is not None and num_examples >= LARGE_DATA and "epochs" in recipe.settings:
            stage["epochs"] /= 2
        if objective.earlier_epochs is not None:
            stage["epochs"] = objective.earlier_epochs
        stage = {name: value for name, value in stage.items() if name == "epochs" or name not in for_all}
        stage |= for_stage(by_stage, number)
        resolved = configuration.iter_settings(configuration.with_overrides(settings, stage))
        stages |= {f"{number}.{setting.name}": setting.value for setting in resolved if setting.name in stage}
    return configuration.with_overrides(settings, {"stages": stages})


def _published_settings(recipe: StageRecipe, width: int) -> dict[str, Any]:
    """The published settings of a stage, with the learning rate adapted to the student's width."""
    settings = dict(recipe.settings)
    if "optimizer.lr" in settings:
        settings["optimizer.lr"] = rounded(min(MAX_LR, settings["optimizer.lr"] * width_factor(width)))
    return settings


def _refuse_unknown_stages(by_stage: dict, num_stages: int) -> None:
    for name in by_stage:
        number, _, inside = name.partition(".")
        if number not in map(str, range(1, num_stages + 1)):
            many = f"has {num_stages} stages" if num_stages > 1 else "has one stage"
            raise ValueError(f"there is no stages.{number}: the recipe {many} on a task, numbered from 1")
        if inside.partition(".")[0] not in STAGE_GROUPS:
            raise ValueError(
                f"{inside} cannot be set per stage, only {', '.join(STAGE_GROUPS)} can: set {inside} for the whole run"
            )


def _family_settings(model: Transformer, task: str) -> dict[str, Any]:
    """The published settings of the model's family for a task; empty if they are the defaults."""
    if isinstance(model, Electra):
        return _electra(model.config.width, task)
    return _gpt1(model.config.width, task) if isinstance(model, Gpt1) else {}


def _measured_settings(model: Transformer, is_custom: bool, num_examples: int) -> dict[str, Any]:
    """Settings of an ELECTRA that was not pre-trained as published, where the published ones are not the best.

    Of a size between the published ones, as the built-in models are (RESULTS.md): a larger rate helps with many
    training examples and makes runs with few of them fail. Small data sets of the user (`is_custom`) keep the default
    epochs, so that a run takes minutes on a CPU. Of a published size, but without dropout: Adam without bias correction
    takes first steps so large that runs end with one prediction for all texts (docs/budgets.md)."""
    if not isinstance(model, Electra):
        return {}
    if not SMALL_WIDTH < model.config.width < BASE_WIDTH:
        return {} if model.config.dropout else {"optimizer.bias_correction": True}
    if num_examples >= MANY_EXAMPLES:
        return {"optimizer.lr": 2e-4, "layers.lr_decay": 0.9}
    return {"epochs": 10.0} if num_examples < FEW_EXAMPLES and not is_custom else {}


def _electra(width: int, task: str) -> dict[str, Any]:
    """Appendix B of the paper; that the layer-wise decay starts two above the top block is only in its code."""
    settings = {
        "optimizer.lr": 3e-4 if width <= SMALL_WIDTH else 1e-4 if width <= BASE_WIDTH else 5e-5,
        "optimizer.weight_decay": 0.0,
        "optimizer.bias_correction": False,
        "layers.lr_decay": 0.8 if width <= BASE_WIDTH else 0.9,
        "layers.lr_decay_from": "electra",
        "schedule.decay_in_warmup": True,
    }
    settings |= {"epochs": 10.0} if task in ("rte", "sts-b") else {}
    return settings | ({"task.swapped_pairs": True} if task in ("mrpc", "sts-b") else {})


def _gpt1(width: int, task: str) -> dict[str, Any]:
    """Sections 3.3 and 4.1 of the paper. Narrow models use the learning rate for their width instead."""
    settings = {
        "task.format": "gpt1",
        "task.lm_weight": 0.5,
        "batch_size": 32,
        "epochs": 3.0,
        "optimizer.eps": 1e-8,
        "schedule.warmup_fraction": 0.002,
    }
    settings |= {"optimizer.lr": 6.25e-5} if width >= BASE_WIDTH else {}
    return settings | ({"task.pair_encoding": "both"} if task in ("mrpc", "qqp", "sts-b") else {})
