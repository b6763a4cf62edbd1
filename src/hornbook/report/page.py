"""`write_report`: the report page of any folder, and that of a pre-training run."""

import shlex
from pathlib import Path

from hornbook.files import read_json_if_exists, refusing_damage
from hornbook.report import formatting
from hornbook.report.comparison import COMPARISON_FILE, write_comparison_page
from hornbook.report.experiment import RESULTS, write_experiment_page
from hornbook.report.finetuned import ReportedTaskRun, load_run
from hornbook.report.finetuned_page import write_finetuned_page
from hornbook.report.plots.drawing import picture
from hornbook.report.plots.learning import curves_figure
from hornbook.report.prompting import SCORES, write_prompted_page
from hornbook.report.rendering import Table, write_page
from hornbook.report.run_files import ReportedRun
from hornbook.report.samples import mask_token, split_sample
from hornbook.report.trials import is_several, several_sections


def write_report(folder: str | Path) -> Path:
    """Writes `report.html` and, once there are metrics, `curves.png` into a run folder; returns the page's path.

    >>> import hornbook
    >>> hornbook.write_report("runs/reviews").name
    'report.html'

    Fine-tuning runs, trials, label curves, experiments, prompted tasks and comparisons have their own pages
    and plots.
    """
    folder = Path(folder)
    with refusing_damage(folder, "restore its JSON files, or create the folder again"):
        if (folder / COMPARISON_FILE).is_file():
            return write_comparison_page(folder)
        if read_json_if_exists(folder / RESULTS).get("kind") == "experiment":
            return write_experiment_page(folder)
        if read_json_if_exists(folder / SCORES).get("kind") == "prompt":
            return write_prompted_page(folder)
        if is_several(folder):
            return write_page(folder, "several.html", f"several runs in {folder}", **several_sections(folder))
        run = load_run(folder)
        return write_finetuned_page(run) if isinstance(run, ReportedTaskRun) else _write_run_page(run)


def _write_run_page(run: ReportedRun) -> Path:
    curves = None
    if run.train or run.validations:
        alt = "Losses, accuracy, learning rate and speed by step"
        curves = picture(curves_figure(run), alt, run.folder / "curves.png")
    mask = mask_token(run.folder)
    samples = [split_sample(sample, mask) for sample in run.samples]
    is_right = [[token == sample["answer"] for token, _ in sample["guesses"]] for sample in samples]
    return write_page(
        run.folder,
        "run.html",
        f"{run.preset}, {run.status}",
        run=run,
        about=_subtitle(run),
        curves=curves,
        last=run.last_validation,
        best=run.best_validation,
        has_best_folder=(run.folder / "best").is_dir(),
        mask=mask,
        samples=samples,
        num_first=sum(any(of_sample[:1]) for of_sample in is_right),
        num_listed=sum(map(any, is_right)),
        corpora=_corpora(run),
        commands=_commands(run, mask),
    )


def _subtitle(run: ReportedRun) -> str:
    size = formatting.parameters(run.record.get("parameters"), run.record.get("kept_parameters"), " parameters")
    start = f"initialised from {run.record['from']}" if run.record.get("from") else "trained from scratch"
    start = f"distilled from {run.teacher}" if run.teacher else start
    version = f"hornbook {run.record['hornbook']}" if "hornbook" in run.record else ""
    return " · ".join(filter(None, (size, start, version, str(run.folder))))


def _corpora(run: ReportedRun) -> Table:
    rows = [
        (
            str(corpus.get("folder", "")),
            f"{corpus.get('documents', 0):,}",
            formatting.amount(corpus.get("tokens", 0)),
            f"{corpus.get('weight', 1):g}",
            formatting.times(corpus["epochs"]),
        )
        for corpus in run.corpora
    ]
    return Table(("corpus", "documents", "tokens", "weight", "read"), rows)


def _commands(run: ReportedRun, mask: str) -> list[tuple[str, str]]:
    sentence = f"The {mask} sat on the mat."
    commands = [] if run.is_finished else [("Resume from the last checkpoint", run.resume_command)]
    can_fill = "mlm" in run.record.get("heads", ["mlm"]) or run.record.get("family") == "electra"
    if can_fill and ((run.folder / "model.safetensors").is_file() or run.is_finished):
        fill = shlex.join(["hornbook", "fill-mask", str(run.folder), sentence])
        code = f"import hornbook\n\nmodel = hornbook.load({str(run.folder)!r})\nmodel.fill_mask({sentence!r})"
        commands += [("Predict a masked word", fill), ("The same in Python", code)]
    return commands
