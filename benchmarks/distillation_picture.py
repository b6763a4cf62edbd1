"""The effect of each component of distillation: the difference to the full recipe in points of the mean score, with its
interval, next to the differences reported in the papers of TinyBERT and DistilBERT.

    python benchmarks/distillation_picture.py half.json [quarter.json] [distilbert.json] --out distillation.png

Each file was written by `distillation.py` and becomes a panel.
"""

import argparse
from pathlib import Path
from statistics import fmean

from distillation import differences
from matplotlib.figure import Figure

from hornbook.files import read_json
from hornbook.metrics.confidence_intervals import mean_interval
from hornbook.report.plots.drawing import BLUE, FAINT, ORANGE, in_style, render_png, show_legend

PANELS = {
    "half": "A student of half the layers, TinyBERT's way",
    "quarter": "A student of a quarter of the width, TinyBERT's way",
    "distilbert": "A student of half the layers, DistilBERT's way",
}
WORDS = {
    "no-general-stage": "not on plain text",
    "no-task-stage": "not on the task",
    "no-augmentation": "no copies",
    "no-embeddings": "no embeddings",
    "no-prediction-layer": "no prediction layer",
    "no-attention": "no attention",
    "no-hidden": "no hidden states",
    "neither-attention-nor-hidden": "neither of both",
    "random-start": "random start on the task",
    "no-scores": "no softened scores",
    "no-cosine": "no cosine",
    "no-masked-tokens": "no masked tokens",
    "random-on-plain-text": "random start on plain text",
}
PUBLISHED = {  # TinyBERT: 4 tasks, 4 layers of BERT-base's 12 (Jiao et al. 2020); DistilBERT: GLUE (Sanh et al. 2019)
    "no-general-stage": 72.5 - 75.6,
    "no-task-stage": 68.5 - 75.6,
    "no-augmentation": 68.4 - 75.6,
    "no-embeddings": 74.1 - 75.6,
    "no-prediction-layer": 73.5 - 75.6,
    "no-attention": 71.0 - 75.6,
    "no-hidden": 72.9 - 75.6,
    "neither-attention-nor-hidden": 56.3 - 75.6,
    "no-scores": -2.96,
    "no-cosine": -1.46,
    "no-masked-tokens": -0.31,
    "random-on-plain-text": -3.69,
}


def draw_panel(axes, title: str, found: dict[str, list[float]]) -> None:
    axes.set_title(title)
    axes.axvline(0, color=FAINT, lw=1)
    for place, (arm, values) in enumerate(found.items()):
        low, high = mean_interval(values) if len(values) > 1 else (values[0], values[0])
        axes.plot([low, high], [place, place], color=BLUE, lw=2, solid_capstyle="round")
        axes.plot(fmean(values), place, "o", color=BLUE, label="here" if place == 0 else None)
        if arm in PUBLISHED:
            first = next(each for each in found if each in PUBLISHED)
            label = "published" if arm == first else None
            axes.plot(PUBLISHED[arm], place, "D", mfc="none", color=ORANGE, markersize=6, label=label)
    axes.set_yticks(range(len(found)), [WORDS.get(arm, arm) for arm in found])
    axes.set_ylim(len(found) - 0.5, -0.5)


@in_style
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = {file.stem: differences(read_json(file)["rows"])[1] for file in args.results}
    figure = Figure(figsize=(7.2, 0.8 * len(found) + 0.32 * sum(map(len, found.values()))))
    heights = [len(arms) for arms in found.values()]
    panels = figure.subplots(len(found), 1, squeeze=False, sharex=True, height_ratios=heights)
    for axes, (name, arms) in zip(panels[:, 0], found.items(), strict=True):
        table = name.removeprefix("distillation-")
        draw_panel(axes, PANELS.get(table, table), arms)
    panels[-1, 0].set_xlabel("points of the mean score, difference to the full recipe")
    show_legend(panels[-1, 0])
    render_png(figure, "", args.out)


if __name__ == "__main__":
    main()
