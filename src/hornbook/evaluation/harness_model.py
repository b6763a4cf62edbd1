"""The model class registered with lm-evaluation-harness as `hornbook`; importing it needs the package `lm_eval`.

lm_eval.simple_evaluate(model="hornbook", model_args={"pretrained": "runs/gpt"}, tasks=["lambada_openai"])
"""

from pathlib import Path

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from hornbook.evaluation.harness import Answers
from hornbook.inference.load import load
from hornbook.nn.int8 import WeightFormat


@register_model("hornbook")
class HornbookLM(LM):
    """`pretrained` is anything that `hornbook.load` accepts. `batch_size` is ignored: batches are formed by tokens."""

    def __init__(self, pretrained: str | Path, weights: WeightFormat = "float", device: str | None = None, **_: object):
        super().__init__()
        loaded = load(pretrained, weights, device or "auto")
        self.answers = Answers(loaded)
        self._device = loaded.device

    def loglikelihood(self, requests: list, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        answers = self.answers.log_likelihoods([each.args for each in requests])
        return self._add_to_cache("loglikelihood", requests, answers)

    def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = False) -> list[float]:
        answers = self.answers.rolling_log_likelihoods([each.args[0] for each in requests])
        return self._add_to_cache("loglikelihood_rolling", requests, answers)

    def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
        answers = self.answers.continuations([each.args for each in requests])
        return self._add_to_cache("generate_until", requests, answers)

    def _add_to_cache(self, kind: str, requests: list, answers: list) -> list:
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial(kind, request.args, answer)
        return answers
