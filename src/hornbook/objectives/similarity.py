"""The losses of text embeddings: in-batch negatives for pairs, triplets and single texts, and scored pairs.

    in-batch negatives   - log softmax over all pairs of the batch of cos(text, pair) / temperature, averaged with the
                         same from pair to text (van den Oord et al. 2018, arXiv 1807.03748; Henderson et al. 2017,
                         arXiv 1705.00652); the negatives of triplets are further candidates
    single texts         the same, where text and pair are one text with two dropout masks (SimCSE, Gao et al. 2021,
                         arXiv 2104.08821)
    scored pairs         (cos(text, pair) - score)^2 (Sentence-BERT, Reimers and Gurevych 2019, arXiv 1908.10084)
    a teacher            (cos(text, other) - the teacher's)^2, averaged over all other texts of the batch (relational
                         distillation, Park et al. 2019, arXiv 1904.05068)

A text is never a negative of an equal text, of a text with an equal pair, or of the pair of an equal text.

The other texts are those of the whole batch also if it is split into micro-batches: the vectors of all micro-batches
are computed first, without gradients, and each micro-batch then computes the loss with its own vectors in their place.
The sum of these gradients is that of the whole batch (gradient caching, Gao et al. 2021, arXiv 2101.06983).

Shapes: N texts, K groups of G texts each, C candidates, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.heads import upcast
from hornbook.train.objective import StepInputs, group_targets

LABELS, VECTORS = "labels", "vectors"  # values of the whole step


class SimilarityObjective:
    """A single loss term, `task`. Groups of a batch are (text, pair) or (text, pair, negative)."""

    is_capturable = False  # the position of a micro-batch in the batch is read on the host

    def __init__(self, head_config: HeadConfig, temperature: float = 0.05):
        self.weights = {"task": 1.0}
        self.head_config, self.temperature = head_config, temperature

    @property
    def shares_vectors(self) -> bool:
        return self.head_config.problem_type != "regression"

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        num_real = batch.num_real_sequences
        targets = group_targets(batch, batch.labels_N[:: batch.group_size][: num_real // batch.group_size])
        shared = {LABELS: batch.labels_N[:num_real]} if self.shares_vectors else {}
        return StepInputs(batch.with_streams({"task": targets}), shared)

    def vectors(self, model: nn.Module, step_inputs: StepInputs) -> Tensor:
        """The normalised vectors of the texts of a micro-batch, N x D, without those of padding sequences."""
        batch = step_inputs.batch
        vectors_ND = upcast(model.outputs(batch)).flatten(0, 1)[: batch.num_real_sequences]
        return F.normalize(vectors_ND, dim=-1)

    def loss_sums(self, model: nn.Module, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        loss, num_right = self._losses(model, step_inputs)
        return {"task": loss, "task_accuracy": num_right} if with_metrics else {"task": loss}

    def _losses(self, model: nn.Module, step_inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """(summed loss, number of right predictions) of a micro-batch."""
        batch, vectors_ND = step_inputs.batch, self.vectors(model, step_inputs)
        group_size = batch.group_size
        if not self.shares_vectors:
            text_KD, pair_KD = vectors_ND.unflatten(0, (-1, group_size)).unbind(1)[:2]
            scores_K = step_inputs.targets["task"].values_K[: len(text_KD)]
            errors_K = (text_KD * pair_KD).sum(-1) - scores_K
            return errors_K.square().sum(), (errors_K.abs() < 0.1).sum()
        first, last = int(batch.step_index_host[0]), int(batch.step_index_host[0]) + len(vectors_ND)
        all_ND, labels_N = vectors_ND, step_inputs.shared[LABELS]
        if VECTORS in step_inputs.shared:
            shared_ND = step_inputs.shared[VECTORS]
            all_ND = torch.cat([shared_ND[:first], vectors_ND, shared_ND[last:]])
        losses_K, is_right_K = self.batch_losses(*(each.unflatten(0, (-1, group_size)) for each in (all_ND, labels_N)))
        groups = slice(first // group_size, last // group_size)
        # The value is that of the micro-batch; the gradient is that of the whole batch, with respect to its vectors.
        whole = losses_K.sum()
        return losses_K[groups].sum().detach() + (whole - whole.detach()), is_right_K[groups].sum()

    def batch_losses(self, vectors_KGD: Tensor, labels_KG: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, whether it is right) of each group, K, from the vectors and labels of the whole batch."""
        return in_batch_losses(vectors_KGD, labels_KG, self.temperature)


class SimilarityDistillation(SimilarityObjective):
    """Learns the cosines of a teacher between all texts of a batch. The labels are the teacher's normalised vectors."""

    shares_vectors = True

    def batch_losses(self, vectors_KGD: Tensor, teacher_KGE: Tensor) -> tuple[Tensor, Tensor]:
        return relation_losses(vectors_KGD, teacher_KGE)


def relation_losses(vectors_KGD: Tensor, teacher_KGE: Tensor) -> tuple[Tensor, Tensor]:
    """(mean squared difference of the cosines with all other texts, whether it is below 0.01) of each group, K."""
    cosines, teacher_cosines = (each @ each.T for each in (vectors_KGD.flatten(0, 1), teacher_KGE.flatten(0, 1)))
    errors_N = (cosines - teacher_cosines).square().fill_diagonal_(0).sum(-1) / max(1, len(cosines) - 1)
    losses_K = errors_N.unflatten(0, vectors_KGD.shape[:2]).mean(-1)
    return losses_K, losses_K < 0.01


def in_batch_losses(vectors_KGD: Tensor, texts_KG: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(loss, whether the pair is the nearest candidate) of each group, K. `texts_KG`: numbers of the texts, equal for
    equal texts."""
    text_KD, pair_KD = vectors_KGD[:, 0], vectors_KGD[:, 1]
    text_K, pair_K = texts_KG[:, 0], texts_KG[:, 1]
    candidates_CD, candidates_C = vectors_KGD[:, 1:].transpose(0, 1).flatten(0, 1), texts_KG[:, 1:].T.flatten()
    same_text_KK = text_K[:, None] == text_K
    forward_KC = _is_false_negative(text_K, pair_K, candidates_C)
    forward_KC = torch.cat([forward_KC[:, : len(text_K)] | same_text_KK, forward_KC[:, len(text_K) :]], 1)
    backward_KK = _is_false_negative(pair_K, text_K, text_K) | (pair_K[:, None] == pair_K)
    diagonal_K = torch.arange(len(text_K), device=text_K.device)
    logits_KC = _masked(text_KD @ candidates_CD.T / temperature, forward_KC, diagonal_K)
    back_KK = _masked(pair_KD @ text_KD.T / temperature, backward_KK, diagonal_K)
    losses = [F.cross_entropy(each, diagonal_K, reduction="none") for each in (logits_KC, back_KK)]
    return (losses[0] + losses[1]) / 2, logits_KC.argmax(-1) == diagonal_K


def _is_false_negative(text_K: Tensor, positive_K: Tensor, candidates_C: Tensor) -> Tensor:
    """Whether a candidate equals the text itself or its pair, K x C."""
    return (candidates_C == text_K[:, None]) | (candidates_C == positive_K[:, None])


def _masked(logits_KC: Tensor, is_masked_KC: Tensor, diagonal_K: Tensor) -> Tensor:
    """Masks the false negatives among the candidates; the positive stays."""
    is_positive_KC = F.one_hot(diagonal_K, logits_KC.shape[1]).bool()
    return logits_KC.masked_fill(is_masked_KC & ~is_positive_KC, MASKED_LOGIT)
