"""The settings by which the tokens of a text are sampled, in the files of tasks and wherever a model generates."""

from dataclasses import dataclass

from hornbook.config import MAX_COUNT, ValidatedSettings, setting


@dataclass(frozen=True)
class SamplingSettings(ValidatedSettings):
    temperature: float = setting(1.0, "sampling temperature; 0 is greedy decoding", low=0, high=1e4)
    top_k: int | None = setting(None, "sample from the k most likely tokens; none: from all", low=1, high=MAX_COUNT)
    top_p: float | None = setting(
        None, "sample from the most likely tokens with this total probability; none: from all", above=0, high=1
    )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0
