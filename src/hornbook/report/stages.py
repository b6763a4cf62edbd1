"""The stages of a distillation on a task that came before its last, which is the run itself.

RUN/stages/1/stage.json    which it is, what was matched in it, and its settings
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
        """1,500 steps at a rate of 5e-05, 42 s"""
        record = self.record
        steps = wording.counted(record.step, "step")
        steps += "" if record.is_finished else f" of {record.num_steps:,} so far"
        return f"{steps} at a rate of {record.settings['optimizer']['lr']:g}, {wording.duration(record.seconds)}"

    @property
    def in_words(self) -> str:
        return f"{', '.join(self.terms)}; {self.took}"


def read_stages(run: Path) -> list[Stage]:
    """Those that have begun, in their order; none where a run has one stage alone."""
    found = []
    for file in Path(run).glob(f"{STAGES}/*/{ABOUT}"):
        about = read_json(file)
        terms = tuple(about["terms"])
        metrics = [_of_what_is_learned(line, terms) for line in read_metrics(file.parent)]
        record = RunRecord(file.parent, about, metrics, state=read_state(file.parent))
        found.append(Stage(about["number"], about["num_stages"], terms, record))
    return sorted(found, key=lambda stage: stage.number)


def _of_what_is_learned(line: dict, terms: tuple[str, ...]) -> dict:
    """Validations also hold what a head says that is not trained yet."""
    if line["kind"] != "validation":
        return line
    return {name: value for name, value in line.items() if name in {*terms, "kind", "step", "loss", "best"}}
