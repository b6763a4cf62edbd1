"""What lm-evaluation-harness asks of a language model, answered by a GPT.

The conventions are those of the harness's own model for `transformers` folders, so that numbers compare: a context goes
without a token before it; where it is empty, the end-of-text token stands there, and the answer is what `score` says.
Spaces at the end of a context belong to what follows. What is too long loses its beginning.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hornbook.infer.decoder import DecoderModel
from hornbook.infer.generation import Request, generate
from hornbook.infer.sampling import Sampling
from hornbook.infer.scoring import Part, part_scores
from hornbook.infer.writing import Writer

MAX_TOKENS = 256  # where a task does not say
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # names for the number of tokens
DRAWING = ("temperature", "top_k", "top_p")
KNOWN = {"until", "do_sample", "seed", "repetition_penalty", *LIMITS, *DRAWING}


class Answers:
    def __init__(self, model: DecoderModel):
        if not isinstance(model, DecoderModel):
            raise ValueError(
                f"{model.folder} is a {model.model.family}: the harness asks models that go on with a text"
            )
        model._needs("clm", "the harness")
        if model.end_id is None:
            raise ValueError(f"{model.folder} names no end-of-text token, after which the harness begins a text")
        self.model = model
        self.context = model.model.config.max_positions

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Of (context, continuation): the log-probability of the continuation, and whether it is the likeliest."""
        texts, parts = [], []
        for number, (context, continuation) in enumerate(pairs):
            before, after = self._tokens_of_pair(context, continuation)
            ids = [*before, *after][-self.context - 1 :]
            texts.append(ids)
            parts.append(Part(number, 0, max(len(ids) - len(after) - 1, 0), len(ids) - 1))
        found = part_scores(self.model.model, texts, parts)
        return [(each.total, bool(each.is_likeliest.all())) for each in found]

    def whole_log_likelihoods(self, texts: Sequence[str]) -> list[float]:
        """Of whole texts, each token once; one longer than the context in windows, of which the last is full."""
        ids = [[self.model.end_id, *tokens] for tokens in self._tokens(texts)]
        parts = [
            Part(number, *window)
            for number, its in enumerate(ids)
            for window in disjoint_windows(len(its) - 1, self.context)
        ]
        totals = [0.0] * len(texts)
        for part, found in zip(parts, part_scores(self.model.model, ids, parts), strict=True):
            totals[part.text] += found.total
        return totals

    def continuations(self, asked: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
        """Of (context, settings): what follows, up to the first of the strings in `until`; those with the same settings
        are written together."""
        groups: dict[str, list[int]] = {}
        for number, (_, settings) in enumerate(asked):
            groups.setdefault(repr(sorted(settings.items())), []).append(number)
        found: dict[int, str] = {}
        for numbers in groups.values():
            request = request_for(asked[numbers[0]][1])
            room = self.context - request.max_tokens
            if room < 1:
                raise ValueError(
                    f"a task asks for {request.max_tokens:,} tokens, and the context has {self.context:,}, so that the "
                    "prompt has no room: ask for fewer (max_gen_toks)"
                )
            prompts = [ids[-room:] or [self.model.end_id] for ids in self._tokens([asked[i][0] for i in numbers])]
            texts = generate(
                self.model.model,
                prompts,
                request,
                lambda prompt, stop=request.stop: Writer(self.model.tokenizer, prompt, stop),
                self.model.end_id,
                self.model.tokenizer.vocab_size,
            )
            found |= {number: its[0].text for number, its in zip(numbers, texts, strict=True)}
        return [found[number] for number in range(len(asked))]

    def _tokens_of_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if not context:
            return [self.model.end_id], self._tokens([continuation])[0]
        spaces = context[len(context.rstrip()) :]
        context = context[: len(context) - len(spaces)]
        before, whole = self._tokens([context, context + spaces + continuation])
        return before, whole[len(before) :]

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return [pieces.ids for pieces in self.model.tokenizer.encode_batch(list(texts))]


def request_for(settings: dict[str, Any]) -> Request:
    """Ours for theirs.

    >>> request_for({"until": "Q:", "max_gen_toks": 8}).stop
    ('Q:',)
    """
    if unknown := sorted(set(settings) - KNOWN):
        raise ValueError(f"a task asks for {unknown[0]}, which generation here does not have; it has {sorted(KNOWN)}")
    until = settings.get("until") or []
    stop = tuple(each for each in ([until] if isinstance(until, str) else until) if each)
    limits = [settings[name] for name in LIMITS if settings.get(name) is not None]
    drawing = {name: settings[name] for name in DRAWING if settings.get(name) is not None}
    if drawing.get("top_k") == 0:  # which stands for all there
        del drawing["top_k"]
    is_drawn = settings.get("do_sample", drawing.get("temperature", 0) > 0)
    sampling = Sampling(
        **(drawing if is_drawn else {"temperature": 0.0}),
        repetition_penalty=settings.get("repetition_penalty") or 1.0,
    )
    return Request(limits[0] if limits else MAX_TOKENS, sampling, stop, settings.get("seed") or 0)


def disjoint_windows(num_targets: int, context: int) -> Iterator[tuple[int, int, int]]:
    """(first token that is read, first target that is scored, end of both), as `scoring.windows`.

    >>> list(disjoint_windows(10, 4))
    [(0, 0, 4), (4, 4, 8), (6, 8, 10)]
    """
    for scored in range(0, num_targets, context):
        end = min(scored + context, num_targets)
        yield max(end - context, 0), scored, end
