"""The stages of a task distillation before the last one, which is the run itself.

RUN/stages/1/stage.json    number of the stage, the loss terms that it trains, and its settings
"""

from dataclasses import dataclass
from pathlib import Path

from hornbook.files import read_json
from hornbook.report import wording
from hornbook.report.run import RunRecord, read_metrics, read_state

STAGES = "stages"
ABOUT = "stage.json"


@dataclass(frozen=True)
class Stage:
    number: int
    num_stages: int
    terms: tuple[str, ...]
    record: RunRecord

    @property
    def title(self) -> str:
        return f"stage {self.number} of {self.num_stages}: {', '.join(self.terms)}"

    @property
    def took(self) -> str:
        """For example `1,500 steps at learning rate 5e-05, 42 s`."""
        record = self.record
        steps = wording.counted(record.step, "step")
        steps += "" if record.is_finished else f" of {record.num_steps:,} so far"
        return f"{steps} at learning rate {record.settings['optimizer']['lr']:g}, {wording.duration(record.seconds)}"

    @property
    def in_words(self) -> str:
        return f"{', '.join(self.terms)}; {self.took}"


def read_stages(run: Path) -> list[Stage]:
    """The earlier stages that have started, in order; empty if the run has only one stage."""
    found = []
    for file in Path(run).glob(f"{STAGES}/*/{ABOUT}"):
        about = read_json(file)
        terms = tuple(about["terms"])
        metrics = [_trained_terms(line, terms) for line in read_metrics(file.parent)]
        record = RunRecord(file.parent, about, metrics, state=read_state(file.parent))
        found.append(Stage(about["number"], about["num_stages"], terms, record))
    return sorted(found, key=lambda stage: stage.number)


def _trained_terms(line: dict, terms: tuple[str, ...]) -> dict:
    """Removes the scores of heads that this stage does not train from a validation line."""
    if line["kind"] != "validation":
        return line
    return {name: value for name, value in line.items() if name in {*terms, "kind", "step", "loss", "best"}}
