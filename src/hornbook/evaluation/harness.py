"""The three request types of lm-evaluation-harness, computed with a GPT.

The conventions are those of the harness's own model for `transformers` folders, so that numbers are comparable: no
token is put before a context; an empty context is the end-of-text token, and the result equals that of `score`. Spaces
at the end of a context belong to the continuation. Inputs that are too long are truncated on the left.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hornbook.inference.decoder import DecoderModel
from hornbook.inference.generation import GenerationConfig, generate
from hornbook.inference.scoring import ScoredWindow, window_scores

MAX_NEW_TOKENS = 256  # where the task gives none
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # accepted names of max_new_tokens
SAMPLING = ("temperature", "top_k", "top_p")
KNOWN = {"until", "do_sample", "seed", "repetition_penalty", *LIMITS, *SAMPLING}


class HarnessScore(NamedTuple):
    """A score of a task. `filter_name`: how answers were taken from the generated text; "" for as they are."""

    task: str
    metric: str
    filter_name: str
    value: float
    standard_error: float | None


def scores_in(results: Mapping[str, Mapping[str, Any]]) -> list[HarnessScore]:
    """The scores in the `results` of the harness, whose keys are `metric,filter` and `metric_stderr,filter`.

    >>> scores_in({"copa": {"alias": "copa", "acc,none": 0.5, "acc_stderr,none": 0.1}})
    [HarnessScore(task='copa', metric='acc', filter_name='', value=0.5, standard_error=0.1)]
    """
    scores = []
    for task, values in results.items():
        for name, value in values.items():
            metric, _, filter_name = name.partition(",")
            if filter_name and not metric.endswith("_stderr") and isinstance(value, float):
                error = values.get(f"{metric}_stderr,{filter_name}")
                shown = "" if filter_name == "none" else filter_name
                scores.append(HarnessScore(task, metric, shown, value, error if isinstance(error, float) else None))
    return scores


class Answers:
    """Answers harness requests with a `DecoderModel`."""

    def __init__(self, model: DecoderModel):
        if not isinstance(model, DecoderModel):
            raise ValueError(
                f"{model.folder} is {model.model.described()}: lm-evaluation-harness needs a left-to-right model (GPT)"
            )
        model._require_head("clm", "lm-evaluation-harness")
        if model.eos_id is None:
            raise ValueError(f"{model.folder} has no end-of-text token, which the harness starts texts with")
        self.model = model
        self.context = model.model.config.max_positions

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """For each (context, continuation): the log-probability of the latter, and whether greedy decoding gives it."""
        texts, windows = [], []
        for i, (context, continuation) in enumerate(pairs):
            before, after = self._tokens_of_pair(context, continuation)
            ids = [*before, *after][-self.context - 1 :]
            texts.append(ids)
            windows.append(ScoredWindow(i, 0, max(len(ids) - len(after) - 1, 0), len(ids) - 1))
        scores = window_scores(self.model.model, texts, windows)
        return [(each.total, bool(each.is_greedy.all())) for each in scores]

    def rolling_log_likelihoods(self, texts: Sequence[str]) -> list[float]:
        """Log-probabilities of whole texts, each token once; in windows, the last one full, beyond the context."""
        ids = [[self.model.eos_id, *tokens] for tokens in self._tokens(texts)]
        windows = [
            ScoredWindow(i, *bounds)
            for i, tokens in enumerate(ids)
            for bounds in disjoint_windows(len(tokens) - 1, self.context)
        ]
        totals = [0.0] * len(texts)
        for window, scores in zip(windows, window_scores(self.model.model, ids, windows), strict=True):
            totals[window.text] += scores.total
        return totals

    def continuations(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
        """For each (context, generation settings): the generated text, up to the first of the strings in `until`.
        Requests with the same settings are batched together."""
        groups: dict[str, list[int]] = {}
        for i, (_, settings) in enumerate(requests):
            groups.setdefault(repr(sorted(settings.items())), []).append(i)
        texts: dict[int, str] = {}
        for indices in groups.values():
            config = generation_config_for(requests[indices[0]][1])
            max_prompt = self.context - config.max_new_tokens
            if max_prompt < 1:
                raise ValueError(
                    f"a task generates {config.max_new_tokens:,} tokens, which leaves no space for the prompt in the "
                    f"context of {self.context:,}: lower max_gen_toks"
                )
            prompts = [
                ids[-max_prompt:] or [self.model.eos_id] for ids in self._tokens([requests[i][0] for i in indices])
            ]
            generated = generate(self.model.model, self.model.tokenizer, prompts, config, self.model.eos_id)
            texts |= {i: samples[0].text for i, samples in zip(indices, generated, strict=True)}
        return [texts[i] for i in range(len(requests))]

    def _tokens_of_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if not context:
            return [self.model.eos_id], self._tokens([continuation])[0]
        spaces = context[len(context.rstrip()) :]
        context = context[: len(context) - len(spaces)]
        before, whole = self._tokens([context, context + spaces + continuation])
        return before, whole[len(before) :]

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoded.ids for encoded in self.model.tokenizer.encode_batch(list(texts))]


def generation_config_for(settings: dict[str, Any]) -> GenerationConfig:
    """Converts the harness's generation settings.

    >>> generation_config_for({"until": "Q:", "max_gen_toks": 8}).stop_strings
    ('Q:',)
    """
    if unknown := sorted(set(settings) - KNOWN):
        raise ValueError(f"a task sets {unknown[0]}, which is not supported; supported are {sorted(KNOWN)}")
    until = settings.get("until") or []
    stop = tuple(each for each in ([until] if isinstance(until, str) else until) if each)
    limits = [settings[name] for name in LIMITS if settings.get(name) is not None]
    sampled = {name: settings[name] for name in SAMPLING if settings.get(name) is not None}
    if sampled.get("top_k") == 0:  # means no limit in the harness
        del sampled["top_k"]
    does_sample = settings.get("do_sample", sampled.get("temperature", 0) > 0)
    return GenerationConfig(
        **(sampled if does_sample else {"temperature": 0.0}),
        repetition_penalty=settings.get("repetition_penalty") or 1.0,
        max_new_tokens=limits[0] if limits else MAX_NEW_TOKENS,
        stop_strings=stop,
        seed=settings.get("seed") or 0,
    )


def disjoint_windows(num_targets: int, context: int) -> Iterator[tuple[int, int, int]]:
    """Yields (first input token, first target, end of both) of disjoint windows, as `scoring.window_bounds` does.

    >>> list(disjoint_windows(10, 4))
    [(0, 0, 4), (4, 4, 8), (6, 8, 10)]
    """
    for scored in range(0, num_targets, context):
        end = min(scored + context, num_targets)
        yield max(end - context, 0), scored, end
