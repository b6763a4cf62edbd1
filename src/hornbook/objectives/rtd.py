"""ELECTRA's replaced token detection: a generator predicts masked tokens (`mlm`), a discriminator detects the tokens
that it replaced (`rtd`).

mlm = - sum over masked tokens of log p_G(token | the masked text)
rtd = - sum over all tokens of log p_D(replaced or not | the text with samples from p_G in place of the masks)

The generator's tokens are sampled by the Gumbel-max trick, and no gradient flows through them. A sampled token that
equals the original counts as original. The loss is mlm / count + 50 x rtd / count.

With `correction`, the discriminator also predicts the original tokens. With `unreplaced_mask_fraction`, it sees some
of the masks themselves, which count as replaced, and so learns to fill in masks too.

The noise is a hash of (a random number per target, the token), so that the samples of a step do not depend on how it is
split into micro-batches or on the device.

Shapes: T tokens, K masked tokens, V vocabulary, D width, N sequences.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hornbook.batch import Batch
from hornbook.config import ValidatedSettings, setting
from hornbook.models.electra import ElectraPair, Shared
from hornbook.models.heads import upcast
from hornbook.objectives.masking import Masking
from hornbook.objectives.mlm import SentenceTask, VocabularyObjective
from hornbook.train.objective import StepInputs, Targets, all_token_targets, group_targets
from hornbook.train.randomness import random_bits, token_keys

DiscriminatorTask = Literal["rtd", "rtd-masked", "replace-mlm", "all-tokens-mlm"]
TASKS: dict[str, tuple[str, tuple[str, ...]]] = {  # name of the loss in the metrics, heads of the discriminator
    "rtd": ("rtd", ("rtd",)),
    "rtd-masked": ("rtd", ("rtd",)),
    "replace-mlm": ("replace_mlm", ("mlm",)),
    "all-tokens-mlm": ("all_tokens_mlm", ("mlm", "rtd")),
}
CORRECTION = "correction"
KEPT_MASK = -1  # hashed in place of a token id, to decide whether a mask is kept
DETECTION_WEIGHT, MLM_WEIGHT = 50.0, 1.0


@dataclass(frozen=True)
class RtdSettings(ValidatedSettings, group="objective"):
    discriminator_task: DiscriminatorTask = setting(
        "rtd",
        "task of the discriminator: rtd detects replaced tokens; rtd-masked only among masked tokens; replace-mlm and "
        "all-tokens-mlm predict the masked or all original tokens from the text with samples (ablations)",
    )
    weight: float | None = setting(
        None, "weight of the discriminator's loss relative to mlm; none: 50 for rtd, 1 for the others", low=0, high=1e6
    )
    correction: float = setting(
        0.0,
        "weight of a loss in which the discriminator also predicts the original masked tokens (COCO-LM); 0: off",
        low=0,
        high=1e6,
    )
    unreplaced_mask_fraction: float = setting(
        0.0,
        "fraction of the masked tokens that the discriminator sees as masks, so that it can fill in masks itself; "
        "needs objective.correction",
        low=0,
        below=1,
    )
    generator_size: float = setting(
        0.25, "width, heads and inner width of the generator, as a fraction of the discriminator's", above=0, high=1
    )
    generator_layers: int | None = setting(
        None, "number of blocks of the generator; none: as many as the discriminator", low=1, high=10_000
    )
    generator_objective: Literal["likelihood", "adversarial"] = setting(
        "likelihood",
        "training of the generator: likelihood (MLM), or adversarial: policy gradient against the discriminator "
        "(paper: worse)",
    )
    generator_lr_ratio: float = setting(
        1.0, "learning rate of the generator's own weights, relative to optimizer.lr", low=0, high=1e6
    )
    temperature: float = setting(
        1.0, "sampling temperature of the generator; above 1, samples are easier to detect", above=0, high=1e4
    )
    shared: Shared = setting(
        "embeddings",
        "weights shared by both encoders: embeddings (as published), tokens, none, or all layers; followed: the "
        "discriminator's token embeddings follow the generator's without sending gradients back (DeBERTa-v3)",
    )
    sentence: SentenceTask = setting(
        "none", "sentence task of the discriminator: consecutive segments (nsp) or swapped ones (sop); published: none"
    )
    sentence_weight: float = setting(1.0, "weight of the sentence task's loss", low=0, high=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.correction and not self.discriminator_task.startswith("rtd"):
            raise ValueError(
                "objective.correction adds token prediction to rtd, but objective.discriminator_task="
                f"{self.discriminator_task} predicts tokens already: "
                "set objective.discriminator_task=rtd or leave objective.correction out"
            )
        if self.unreplaced_mask_fraction and not self.correction:
            raise ValueError(
                "objective.unreplaced_mask_fraction leaves masks for the discriminator to fill in, which only the "
                "correction loss trains: set objective.correction=1"
            )
        if self.shared == "all" and (self.generator_size != 1 or self.generator_layers is not None):
            raise ValueError(
                "objective.shared=all needs two encoders of the same size: set objective.generator_size=1 and leave "
                "objective.generator_layers out"
            )
        if self.generator_objective == "adversarial" and not self.discriminator_task.startswith("rtd"):
            raise ValueError(
                "objective.generator_objective=adversarial needs a discriminator: set objective.discriminator_task=rtd"
            )
        if self.generator_objective == "adversarial" and self.unreplaced_mask_fraction:
            raise ValueError(
                "objective.generator_objective=adversarial rewards samples only: leave "
                "objective.unreplaced_mask_fraction out"
            )

    @property
    def term(self) -> str:
        """The name of the discriminator's loss."""
        return TASKS[self.discriminator_task][0]

    @property
    def weights(self) -> dict[str, float]:
        weight = self.weight
        if weight is None:
            weight = DETECTION_WEIGHT if self.discriminator_task.startswith("rtd") else MLM_WEIGHT
        terms = {"mlm": 1.0, self.term: weight} | ({CORRECTION: self.correction} if self.correction else {})
        if self.generator_objective == "adversarial":
            terms |= {"mlm": 0.0, "policy": 1.0, "baseline": 1.0}
        return terms if self.sentence == "none" else terms | {self.sentence: self.sentence_weight}

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the discriminator."""
        sentence_heads = () if self.sentence == "none" else ("pooler", "sentence")
        return *sentence_heads, *(("mlm", "rtd") if self.correction else TASKS[self.discriminator_task][1])


@dataclass(frozen=True)
class _Corrupted:
    """The generator's outputs in a step."""

    x_KD: Tensor  # hidden states at the masked tokens
    logits_KV: Tensor
    samples_K: Tensor  # the sampled tokens
    original_T: Tensor  # the original text
    batch: Batch  # the text with the sampled tokens


@dataclass(frozen=True)
class _DiscriminatorTerm:
    """A loss term of the discriminator: losses and correctness per target."""

    losses_K: Tensor
    is_right_K: Callable[[], Tensor]  # called in validation only: it may be an argmax over the vocabulary
    is_replaced_K: Tensor
    weights_K: Tensor


class RtdObjective(VocabularyObjective):
    """The objective of an `ElectraPair`."""

    is_capturable = True
    compiled = ("summed_loss", "sample_tokens", "copy_or_predict_loss")

    def __init__(self, masking: Masking, settings: RtdSettings | None = None):
        self.masking = masking
        self.settings = settings or RtdSettings()
        self.weights = self.settings.weights
        self.term = self.settings.term
        self.wants_every_token = self.settings.discriminator_task in ("rtd", "all-tokens-mlm")
        self.sample_tokens, self.copy_or_predict_loss = sample_tokens, copy_or_predict_loss

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        """Targets of `mlm`, of `rtd` (every token) and, under `noise_seeds`, the random numbers that seed the noise."""
        keys_T = token_keys(batch, seed)
        ids_T, mlm = self.masking.prepare(batch, keys_T)
        seeds_K = random_bits(keys_T[mlm.indices_K], "guess")[0] - 2**31
        targets = {"mlm": mlm, "noise_seeds": dataclasses.replace(mlm, values_K=seeds_K)}
        targets[self.term] = all_token_targets(batch) if self.wants_every_token else mlm
        if self.settings.correction:
            targets[CORRECTION] = mlm
        if self.settings.generator_objective == "adversarial":
            targets |= {"policy": mlm, "baseline": mlm}
        if self.settings.sentence != "none":
            targets[self.settings.sentence] = group_targets(batch, batch.labels_N[: batch.num_real_sequences])
        return StepInputs(batch.with_values("tokens", ids_T=ids_T).with_streams(targets))

    def loss_sums(self, model: ElectraPair, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        corrupted = self._corrupted(model, step_inputs)
        mlm, x_TD = step_inputs.targets["mlm"], model.discriminator(corrupted.batch)
        sums = self.term_sums("mlm", corrupted.logits_KV, mlm, with_metrics)
        terms = {self.term: self._detection(model, x_TD, corrupted, step_inputs)}
        if self.settings.correction:
            terms[CORRECTION] = self._correction(model, x_TD, corrupted, mlm)
        for name, term in terms.items():
            sums[name] = (term.losses_K * term.weights_K).sum()
            if not with_metrics:
                continue
            is_right_K = term.is_right_K()
            sums[f"{name}_accuracy"] = (is_right_K * term.weights_K).sum()
            if name == "rtd":
                sums["rtd_replaced"] = (term.is_replaced_K * term.weights_K).sum()
                sums["rtd_found"] = ((term.is_replaced_K & is_right_K) * term.weights_K).sum()
        if "policy" in self.weights:
            sums |= self._adversarial(model, x_TD, corrupted, step_inputs)
        if (sentence := step_inputs.targets.get(self.settings.sentence)) is not None:
            logits_N2 = model.discriminator.sentence_logits(x_TD[sentence.indices_K])
            sums |= self.term_sums(self.settings.sentence, logits_N2, sentence, with_metrics)
        return sums

    def _corrupted(self, model: ElectraPair, step_inputs: StepInputs) -> _Corrupted:
        mlm = step_inputs.targets["mlm"]
        x_KD = model.generator(step_inputs.batch).index_select(0, mlm.indices_K)
        logits_KV = model.generator.vocabulary_logits(x_KD)
        seeds_K = step_inputs.targets["noise_seeds"].values_K
        samples_K = self.sample_tokens(logits_KV.detach(), seeds_K, self.settings.temperature)
        if self.settings.unreplaced_mask_fraction:
            is_kept_K = uniform(seeds_K.to(torch.int32), KEPT_MASK) < self.settings.unreplaced_mask_fraction
            samples_K = torch.where(is_kept_K, self.masking.mask_id, samples_K)
        masked_T = step_inputs.batch.ids_T
        original_T = replace_at_targets(masked_T, mlm, mlm.values_K)
        batch = step_inputs.batch.with_values("tokens", ids_T=replace_at_targets(masked_T, mlm, samples_K))
        return _Corrupted(x_KD, logits_KV, samples_K, original_T, batch)

    def _detection(
        self, model: ElectraPair, x_KD: Tensor, corrupted: _Corrupted, step_inputs: StepInputs
    ) -> _DiscriminatorTerm:
        targets = step_inputs.targets[self.term]
        original_K, text_K = corrupted.original_T, corrupted.batch.ids_T
        if self.wants_every_token:  # targets are in token order; either side may have padding at the end
            num = min(len(x_KD), len(targets.weights_K))
            x_KD, original_K, text_K, weights_K = x_KD[:num], original_K[:num], text_K[:num], targets.weights_K[:num]
        else:
            x_KD, weights_K = x_KD.index_select(0, targets.indices_K), targets.weights_K
            original_K, text_K = original_K[targets.indices_K], text_K[targets.indices_K]
        is_replaced_K = text_K != original_K
        if self.settings.discriminator_task == "replace-mlm":
            logits_KV = upcast(model.discriminator.vocabulary_logits(x_KD))
            losses_K = F.cross_entropy(logits_KV, original_K, reduction="none")
            return _DiscriminatorTerm(losses_K, lambda: logits_KV.argmax(-1) == original_K, is_replaced_K, weights_K)
        rtd_logits_K = upcast(model.discriminator.rtd(x_KD))
        if self.settings.discriminator_task == "all-tokens-mlm":
            return self._copy_or_predict(
                model.discriminator.vocabulary_logits(x_KD), rtd_logits_K, original_K, is_replaced_K, weights_K
            )
        losses_K = F.binary_cross_entropy_with_logits(
            rtd_logits_K, is_replaced_K.to(rtd_logits_K.dtype), reduction="none"
        )
        return _DiscriminatorTerm(losses_K, lambda: (rtd_logits_K > 0) == is_replaced_K, is_replaced_K, weights_K)

    def _copy_or_predict(
        self, logits_KV: Tensor, rtd_logits_K: Tensor, original_K: Tensor, is_replaced_K: Tensor, weights_K: Tensor
    ) -> _DiscriminatorTerm:
        """Losses of a prediction that copies each token or predicts it, as decided by the `rtd` logits."""
        losses_K = self.copy_or_predict_loss(logits_KV, rtd_logits_K, original_K, is_replaced_K)

        def is_right_K() -> Tensor:
            return torch.where(rtd_logits_K > 0, logits_KV.argmax(-1) == original_K, ~is_replaced_K)

        return _DiscriminatorTerm(losses_K, is_right_K, is_replaced_K, weights_K)

    def _correction(self, model: ElectraPair, x_TD: Tensor, corrupted: _Corrupted, mlm: Targets) -> _DiscriminatorTerm:
        """Losses of predicting the original masked tokens by copying or predicting; no gradient goes to the `rtd`
        logits (Meng et al. 2021, arXiv 2102.08473, "corrective language modeling")."""
        x_KD = x_TD.index_select(0, mlm.indices_K)
        with torch.no_grad():
            rtd_logits_K = upcast(model.discriminator.rtd(x_KD))
        logits_KV = model.discriminator.vocabulary_logits(x_KD)
        is_replaced_K = corrupted.samples_K != mlm.values_K
        return self._copy_or_predict(logits_KV, rtd_logits_K, mlm.values_K, is_replaced_K, mlm.weights_K)

    def _adversarial(
        self, model: ElectraPair, x_TD: Tensor, corrupted: _Corrupted, step_inputs: StepInputs
    ) -> dict[str, Tensor]:
        """REINFORCE (appendix F of the paper): the reward of a sampled token is the discriminator's loss on it, less a
        learned baseline.

        policy = - sum of (reward - baseline) x log p_G(sample); the baseline is - log sigmoid(w x), and sigmoid(w x) is
        trained towards the probability that the discriminator gives to the correct answer.
        """
        targets = step_inputs.targets["policy"]
        with torch.no_grad():
            rtd_logits_K = upcast(model.discriminator.rtd(x_TD.index_select(0, targets.indices_K)))
            is_replaced_K = (corrupted.samples_K != targets.values_K).to(rtd_logits_K.dtype)
            rewards_K = F.binary_cross_entropy_with_logits(rtd_logits_K, is_replaced_K, reduction="none")
        expected_K = upcast(model.generator.reward(corrupted.x_KD.detach())[:, 0])
        advantages_K = rewards_K + F.logsigmoid(expected_K.detach())
        surprisals_K = F.cross_entropy(upcast(corrupted.logits_KV), corrupted.samples_K, reduction="none")
        baseline_K = F.binary_cross_entropy_with_logits(expected_K, torch.exp(-rewards_K), reduction="none")
        return {
            "policy": (advantages_K * surprisals_K * targets.weights_K).sum(),
            "baseline": (baseline_K * targets.weights_K).sum(),
        }


def replace_at_targets(ids_T: Tensor, targets: Targets, values_K: Tensor) -> Tensor:
    """The text with `values_K` at the positions of the targets, except those of weight 0."""
    beyond = len(ids_T)
    indices_K = torch.where(targets.weights_K > 0, targets.indices_K, beyond)
    return F.pad(ids_T, (0, 1)).scatter(0, indices_K, values_K)[:beyond]


def copy_or_predict_loss(logits_KV: Tensor, rtd_logits_K: Tensor, original_K: Tensor, is_replaced_K: Tensor) -> Tensor:
    """- log p(token), K, where p(token) = p(copy) x [token is in the text] + (1 - p(copy)) x softmax(token) and
    1 - p(copy) = sigmoid of the `rtd` logits `rtd_logits_K`."""
    predicted_K = F.logsigmoid(rtd_logits_K) - F.cross_entropy(upcast(logits_KV), original_K, reduction="none")
    copied_K = F.logsigmoid(-rtd_logits_K).masked_fill(is_replaced_K, -torch.inf)
    return -torch.logaddexp(predicted_K, copied_K)


def sample_tokens(logits_KV: Tensor, seeds_K: Tensor, temperature: float = 1.0) -> Tensor:
    """A sample from softmax(logits / temperature) for each row, K, by the Gumbel-max trick with noise from
    `seeds_K`."""
    tokens_V = torch.arange(logits_KV.shape[-1], device=logits_KV.device, dtype=torch.int32)
    uniform_KV = uniform(seeds_K.to(torch.int32)[:, None], tokens_V)
    return (logits_KV.float() - temperature * torch.log(-torch.log(uniform_KV))).argmax(-1)


def uniform(numbers: Tensor, indices: Tensor | int) -> Tensor:
    """A float32 in (0, 1) for each pair of int32s, by the finaliser of MurmurHash3."""
    x = numbers ^ (indices * -1640531535)  # 2^32 over the golden ratio: spreads neighbouring indices
    x = (x ^ ((x >> 16) & 0xFFFF)) * -2048144789
    x = (x ^ ((x >> 13) & 0x7FFFF)) * -1028477387
    x = x ^ ((x >> 16) & 0xFFFF)
    return (((x >> 9) & 0x7FFFFF).float() + 0.5) * 2.0**-23  # exact, and never 0 or 1
