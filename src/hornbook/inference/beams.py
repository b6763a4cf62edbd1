"""Beam search.

score = (sum of the log-probabilities of the tokens) / (number of tokens) ^ length_penalty

Shapes: P prompts, B beams, N = P x B sequences, K = 2 B candidates, S generated tokens, V vocabulary.
The rules are those of `transformers`, so that both find the same texts: of the 2 B best candidates, those that end and
are among the first B are kept as finished, and the first B that do not end continue. The search of a prompt ends when
no running beam can overtake the worst of B finished ones at its present length, or, with `early_stopping`, as soon as B
are finished.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hornbook.config import ValidatedSettings, setting
from hornbook.devices import device_of
from hornbook.inference.generation import (
    Generated,
    GenerationConfig,
    StreamingDetokenizer,
    fit_prompts,
    group_prompts,
    mask_unused,
    penalize_repetition,
    read_prompts,
)
from hornbook.models.gpt import Gpt
from hornbook.text.tokenizer import Tokenizer

MINUS_INFINITY = -1e9  # finite, so that sums with it keep their order


@dataclass(frozen=True)
class BeamSettings(ValidatedSettings, group=""):
    num_beams: int = setting(4, "number of beams", low=1, high=1000)
    length_penalty: float = setting(1.0, "above 0 prefers longer texts", low=-100, high=100)
    early_stopping: bool = False


@dataclass
class _Beams:
    """The running and the finished beams of each prompt, best first: tokens P x B x S, everything else P x B."""

    running: Tensor
    running_scores: Tensor
    finished: Tensor
    finished_scores: Tensor
    finished_lengths: Tensor
    is_finished: Tensor
    is_over: Tensor  # P


def beam_search(
    model: Gpt,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
    settings: BeamSettings,
    eos_id: int | None = None,
) -> list[list[Generated]]:
    """Returns the `config.num_return_sequences` best continuations of each prompt. `slide` is not supported, as the
    beams of a prompt would drop different contexts."""
    context = model.config.max_positions
    if config.num_return_sequences > settings.num_beams:
        raise ValueError(
            f"num_return_sequences is {config.num_return_sequences}, which needs at least as many beams, not "
            f"{settings.num_beams}"
        )
    if config.slide:
        raise ValueError("beam search does not support slide: leave out slide= or num_beams=")
    prompts = fit_prompts(prompts, context, False)
    texts: dict[int, list[Generated]] = {}
    for group in group_prompts(prompts, settings.num_beams, config.max_new_tokens, context):
        search = _Search(model, tokenizer, [prompts[i] for i in group], config, settings, eos_id)
        texts |= zip(group, search.run(), strict=True)
    return [texts[i] for i in range(len(prompts))]


class _Search:
    def __init__(self, model, tokenizer, prompts, config, settings, eos_id):
        self.model, self.prompts, self.config, self.settings = model, prompts, config, settings
        self.tokenizer, self.eos_id, self.device = tokenizer, eos_id, device_of(model)
        # One token more than the free positions: the last one is not fed back.
        context = model.config.max_positions
        self.limits = [min(config.max_new_tokens, context - len(prompt) + 1) for prompt in prompts]

    @torch.inference_mode()
    def run(self) -> list[list[Generated]]:
        prompts, num_beams = self.prompts, self.settings.num_beams
        decoding, logits_NV, seen_NV = read_prompts(self.model, prompts, num_beams, self.config)
        beams = self._start()
        first_row_P1 = torch.arange(len(prompts), device=self.device)[:, None] * num_beams
        for step in range(1, max(self.limits) + 1):
            scores_NV = mask_unused(logits_NV, self.tokenizer.vocab_size).log_softmax(-1)
            if seen_NV is not None:
                scores_NV = penalize_repetition(scores_NV, seen_NV, self.config.repetition_penalty)
            from_PB = self._advance(beams, scores_NV.unflatten(0, (-1, num_beams)), step)
            if bool(beams.is_over.all()):
                break
            rows_N = (from_PB + first_row_P1).flatten()
            chosen_N = beams.running[:, :, step - 1].flatten()
            decoding.reorder(rows_N)
            if seen_NV is not None:
                seen_NV = seen_NV[rows_N].scatter(1, chosen_N[:, None], True)
            logits_NV = decoding.step(chosen_N)
        return self._answers(beams)

    def _start(self) -> _Beams:
        shape = (len(self.prompts), self.settings.num_beams)
        tokens = torch.zeros(*shape, max(self.limits), dtype=torch.int64, device=self.device)
        scores = torch.full(shape, MINUS_INFINITY, device=self.device)
        running_scores = scores.clone()
        running_scores[:, 0] = 0  # all beams start from the same prompt: only the first counts
        false = torch.zeros(shape, dtype=torch.bool, device=self.device)
        lengths = torch.zeros(shape, dtype=torch.int64, device=self.device)
        return _Beams(tokens, running_scores, tokens.clone(), scores, lengths, false, false[:, 0].clone())

    def _advance(self, beams: _Beams, scores_PBV: Tensor, step: int) -> Tensor:
        """Adds the token of `step` (from 1) to the beams; returns the beam that each running one extends, P x B."""
        num_beams, vocab_size = scores_PBV.shape[1:]
        sums_PBV = scores_PBV + beams.running_scores[:, :, None]
        best = sums_PBV.flatten(1).topk(min(2 * num_beams, num_beams * vocab_size))
        from_PK = best.indices // vocab_size
        tokens_PKS = _rows(beams.running, from_PK)
        tokens_PKS[:, :, step - 1] = best.indices % vocab_size
        ends_PK = self._ends(tokens_PKS, step)

        running = (best.values + ends_PK * MINUS_INFINITY).topk(num_beams)
        is_active_P = ~beams.is_over
        self._keep_finished(beams, best.values, tokens_PKS, ends_PK, step)
        beams.running = _rows(tokens_PKS, running.indices)
        beams.running_scores = running.values
        # As in transformers: at the present length, although a longer text may score higher.
        best_possible_P1 = running.values[:, :1] / step**self.settings.length_penalty
        worst_P1 = beams.finished_scores.amin(1, keepdim=True)
        can_improve = (best_possible_P1 > torch.where(beams.is_finished, worst_P1, MINUS_INFINITY)).any(1)
        is_full = beams.is_finished.all(1) if self.settings.early_stopping else torch.zeros_like(can_improve)
        beams.is_over = ~(is_active_P & can_improve & ~is_full & ~ends_PK.all(1))
        return from_PK.gather(1, running.indices)

    def _keep_finished(self, beams: _Beams, sums_PK: Tensor, tokens_PKS: Tensor, ends_PK: Tensor, step: int) -> None:
        """Merges candidates that end now, and are among the first B, into the finished beams; keeps the best B."""
        num_beams = self.settings.num_beams
        new_PK = ends_PK & (torch.arange(ends_PK.shape[1], device=self.device) < num_beams)
        new_PK &= ~beams.is_over[:, None]
        scores_PK = torch.where(new_PK, sums_PK / step**self.settings.length_penalty, sums_PK + MINUS_INFINITY)
        merged = torch.cat([beams.finished_scores, scores_PK], 1)
        order = merged.topk(num_beams)
        beams.finished_scores = order.values
        beams.finished = _rows(torch.cat([beams.finished, tokens_PKS], 1), order.indices)
        lengths_PK = torch.full_like(ends_PK, step, dtype=torch.int64)
        beams.finished_lengths = torch.cat([beams.finished_lengths, lengths_PK], 1).gather(1, order.indices)
        beams.is_finished = torch.cat([beams.is_finished, new_PK], 1).gather(1, order.indices)

    def _ends(self, tokens_PKS: Tensor, step: int) -> Tensor:
        """Whether each candidate ends with its last token, P x K."""
        limits_P = torch.tensor(self.limits, device=self.device)
        ends_PK = (limits_P <= step)[:, None].expand(tokens_PKS.shape[:2]).clone()
        if self.eos_id is not None:
            ends_PK |= tokens_PKS[:, :, step - 1] == self.eos_id
        if self.config.stop_strings:
            rows = tokens_PKS[:, :, :step].tolist()
            stopped = [
                [self._decoded(prompt, ids).is_stopped for ids in candidates]
                for prompt, candidates in zip(self.prompts, rows, strict=True)
            ]
            ends_PK |= torch.tensor(stopped, device=self.device)
        return ends_PK

    def _decoded(self, prompt: list[int], ids: list[int]) -> StreamingDetokenizer:
        detokenizer = StreamingDetokenizer(self.tokenizer, prompt, self.config.stop_strings)
        detokenizer.add(ids[:-1] if ids[-1] == self.eos_id else ids)
        detokenizer.finish()
        return detokenizer

    def _answers(self, beams: _Beams) -> list[list[Generated]]:
        rows, lengths = beams.finished.tolist(), beams.finished_lengths.tolist()
        return [
            [
                self._answer(prompt, rows[i][beam][: lengths[i][beam]], limit)
                for beam in range(self.config.num_return_sequences)
            ]
            for i, (prompt, limit) in enumerate(zip(self.prompts, self.limits, strict=True))
        ]

    def _answer(self, prompt: list[int], ids: list[int], limit: int) -> Generated:
        detokenizer = self._decoded(prompt, ids)
        if ids[-1] == self.eos_id:
            return Generated(detokenizer.text, ids[:-1], "end")
        if detokenizer.is_stopped:
            return Generated(detokenizer.text, ids, "stop")
        return Generated(detokenizer.text, ids, "length" if limit == self.config.max_new_tokens else "context")


def _rows(of_PKS: Tensor, which_PB: Tensor) -> Tensor:
    return of_PKS.gather(1, which_PB[:, :, None].expand(-1, -1, of_PKS.shape[-1]))
