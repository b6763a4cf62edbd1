"""Does our BERT learn the same as a plain loop around `transformers`? Several seeds each, with the same data, size and
learning rate.

    python benchmarks/learning.py --data corpus.txt --vocabulary DIR [--preset bert-mini] [--steps 1000] [--seeds 4]

Both sides see the same sequences (pairs), start from the same weights (drawn by `transformers`, whose normal is not
truncated at two standard deviations as BERT's published one is, so it is 14% wider) and train BERT's two losses with
AdamW, linear warmup and decay, clipping at 1. The other side is `BertForPreTraining` on padded batches, masked by the
rule of `transformers` (each token with probability 15%). Validation is the same for both: the weights of `transformers`
are loaded into our model for it.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from scipy.stats import t as student

from hornbook.batch import Batch
from hornbook.config import with_overrides
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceSampler
from hornbook.interop.folder import load_weights
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.mlm import MlmObjective
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer, set_learning_rate
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch
from hornbook.train.settings import OptimizerSettings, RuntimeSettings, ScheduleSettings
from hornbook.train.step import Stepper
from hornbook.train.validation import validate

NUM_POINTS = 8


class Comparison:
    """The data, settings and validation that both sides share."""

    def __init__(self, args: argparse.Namespace, corpus: Corpus, runtime: Runtime):
        self.args, self.corpus, self.runtime = args, corpus, runtime
        tokenizer = corpus.tokenizer
        self.mask_id, self.special_ids = tokenizer.mask_id, tokenizer.special_ids
        self.config: BertConfig = with_overrides(
            PRESETS[args.preset].model, {"vocab_size": tokenizer.vocab_size, "init_std": args.init_std}
        )
        self.objective = MlmObjective(
            Masking(MaskingSettings(), tokenizer.vocab_size, self.mask_id, self.special_ids), sentence="nsp"
        )
        self.schedule = ScheduleSettings(steps=args.steps, warmup_fraction=0.1)
        self.optimizer_settings = OptimizerSettings(lr=args.lr)
        self.num_sequences = args.batch_tokens // args.length
        held_out = SequenceSampler(
            [(corpus, 1.0)], args.length, 0, layout="nsp", short_sequence_probability=0.0, held_out=True
        )
        num_batches = min(16, max(1, sum(chunks.total for chunks in held_out.chunks) // self.num_sequences))
        self.held_out = [held_out.batch(i, self.num_sequences) for i in range(num_batches)]
        self.points = {round(args.steps * (i + 1) / NUM_POINTS) for i in range(NUM_POINTS)}

    def batches(self, seed: int):
        sampler = SequenceSampler([(self.corpus, 1.0)], self.args.length, seed, layout="nsp")
        for number in range(self.args.steps):
            yield number, sampler.batch(number, self.num_sequences).to(self.runtime.device)

    def measured(self, model: Bert) -> dict[str, float]:
        return validate(TrainingModule(model, self.objective), self.held_out, self.runtime)

    def their_model(self, seed: int) -> transformers.BertForPreTraining:
        torch.manual_seed(seed)
        settings = transformers.BertConfig.from_dict(Bert(self.config).hf_config())
        return transformers.BertForPreTraining(settings).to(self.runtime.device)

    def as_ours(self, model: transformers.BertForPreTraining) -> Bert:
        """Our model with the same weights."""
        copy = Bert(self.config)
        weights = {k: v.detach().cpu() for k, v in model.state_dict().items() if ".decoder." not in k}
        load_weights(copy, weights, Path("transformers"))
        return copy.to(self.runtime.device)


def ours(shared, seed: int) -> dict[int, dict]:
    model = shared.as_ours(shared.their_model(seed))
    optimizer = make_optimizer(model, shared.optimizer_settings)
    stepper = Stepper(TrainingModule(model, shared.objective), optimizer, shared.runtime, seed, 1.0, 1 << 20)
    curve = {}
    for number, batch in shared.batches(seed):
        stepper.train_step(batch, number, shared.args.lr * shared.schedule.lr_ratio(number))
        if number + 1 in shared.points:
            curve[number + 1] = shared.measured(model)
    return curve


def their_optimizer(model: torch.nn.Module, chosen: OptimizerSettings) -> torch.optim.AdamW:
    """As in a plain loop: matrices and embeddings have weight decay, vectors do not."""
    matrices, vectors = ([p for p in model.parameters() if (p.ndim >= 2) == is_matrix] for is_matrix in (True, False))
    groups = [{"params": matrices, "share": 1.0}, {"params": vectors, "weight_decay": 0.0, "share": 1.0}]
    return torch.optim.AdamW(
        groups, chosen.lr, (chosen.beta1, chosen.beta2), chosen.eps, chosen.weight_decay, fused=True
    )


def theirs(shared: Comparison, seed: int) -> dict[int, dict]:
    model = shared.their_model(seed)
    optimizer = their_optimizer(model, shared.optimizer_settings)
    random = torch.Generator(shared.runtime.device).manual_seed(seed)
    curve = {}
    for number, batch in shared.batches(seed):
        model.train()
        with shared.runtime.autocast():
            out = model(**padded(batch, shared, random))
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        set_learning_rate(optimizer, shared.args.lr * shared.schedule.lr_ratio(number))
        optimizer.step()
        optimizer.zero_grad()
        if number + 1 in shared.points:
            curve[number + 1] = shared.measured(shared.as_ours(model))
    return curve


def padded(batch: Batch, shared: Comparison, random: torch.Generator) -> dict[str, torch.Tensor]:
    """The padded batch with an attention mask, masked by the rule of `transformers`."""
    device = batch.ids_T.device
    lengths = torch.from_numpy(np.diff(batch.offsets_host)).to(device)
    mask = torch.arange(int(lengths.max()), device=device) < lengths[:, None]
    ids, segments = (torch.zeros(mask.shape, dtype=torch.long, device=device) for _ in range(2))
    ids[mask], segments[mask] = batch.ids_T, batch.segments_T
    is_special = torch.isin(ids, torch.tensor(shared.special_ids, device=device))
    chosen = mask & ~is_special & (torch.rand(mask.shape, device=device, generator=random) < 0.15)
    labels = ids.where(chosen, -100)
    coin = torch.rand(mask.shape, device=device, generator=random)
    other = torch.randint(shared.config.vocab_size, mask.shape, device=device, generator=random)
    ids = torch.where(chosen & (coin < 0.8), shared.mask_id, torch.where(chosen & (coin >= 0.9), other, ids))
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask.long(),
        "labels": labels,
        "next_sentence_label": batch.labels_N,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--preset", default="bert-mini")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--init-std", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", default="learning.json")
    args = parser.parse_args()
    runtime = choose_runtime(RuntimeSettings(compile="no"), 0)
    configure_torch(runtime)
    print(runtime.description, "torch", torch.__version__, "transformers", transformers.__version__)
    with tempfile.TemporaryDirectory() as folder:
        build_corpus([args.data], args.vocabulary, folder, workers=2)
        shared = Comparison(args, Corpus(folder), runtime)
        curves = compared(shared, theirs, model_flops_per_token(shape_of(shared.config, args.length, 0.15)))
    report(curves)
    draw(curves, Path(args.out).with_suffix(".png"))


def compared(shared, theirs: Callable, flops_per_token: float) -> dict[str, list]:
    """The curves of both sides, seed by seed; saved as they are measured."""
    args = shared.args
    tokens = args.steps * args.batch_tokens
    flops = tokens * flops_per_token
    print(f"{tokens:,} tokens, {flops:.2e} FLOPs a run, {shared.corpus.num_tokens:,} tokens in the corpus")
    curves: dict[str, list] = {"ours": [], "transformers": []}
    for seed in range(args.seeds):
        for side, learn in (("ours", ours), ("transformers", theirs)):
            start = time.monotonic()
            curves[side].append(learn(shared, seed))
            last = curves[side][-1][args.steps]
            print(f"seed {seed} {side}: {json.dumps(last)} {time.monotonic() - start:.0f} s", flush=True)
            Path(args.out).write_text(json.dumps({"arguments": vars(args), "curves": curves}))
    return curves


def report(curves: dict[str, list], measure: str = "mlm") -> None:
    """Mean and standard deviation over seeds at each point, and the difference with its interval: unpaired, and paired
    by seed, since both sides share the data and initial weights of a seed."""
    heads = (f"ours {measure}", f"transformers {measure}")
    print(f"{'step':>6} {heads[0]:>16} {heads[1]:>18} {'difference':>11} {'95% interval':>18} {'seed by seed':>18}")
    for step in curves["ours"][0]:
        a, b = (np.array([run[step][measure] for run in curves[side]]) for side in ("ours", "transformers"))
        spread_a, spread_b = (x.std(ddof=1) if len(x) > 1 else float("nan") for x in (a, b))
        difference = a.mean() - b.mean()
        apart = student.ppf(0.975, 2 * len(a) - 2) * np.sqrt((spread_a**2 + spread_b**2) / len(a))
        paired = student.ppf(0.975, len(a) - 1) * (a - b).std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else float("nan")
        intervals = " ".join(f"{difference - reach:9.3f} to {difference + reach:.3f}" for reach in (apart, paired))
        means = f"{a.mean():8.3f} ± {spread_a:.3f}  {b.mean():8.3f} ± {spread_b:.3f}"
        print(f"{step:6d} {means} {difference:11.3f} {intervals}")


def draw(curves: dict[str, list], path: Path, measure: str = "mlm", loss: str = "masked-token loss") -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for side, colour in (("transformers", "#888888"), ("ours", "#b5412b")):
        for i, run in enumerate(curves[side]):
            values = [point[measure] for point in run.values()]
            axes.plot(list(run), values, color=colour, alpha=0.7, lw=1.2, label=side if i == 0 else None)
    axes.set(xlabel="step", ylabel=f"{loss} on held-out text", title="Learning, one line a seed")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
