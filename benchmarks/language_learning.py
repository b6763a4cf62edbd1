"""Does our GPT-2 learn the same as a plain loop around `transformers`? Several seeds each, with the same data, initial
weights and learning rate.

    python benchmarks/language_learning.py --data corpus.txt --vocabulary DIR [--steps 1000] [--seeds 4]

Both sides see the same chunks of text, each one sequence across document boundaries as published for GPT-2, start from
weights drawn by `transformers`, and predict the same next tokens (all but the one after the end of a chunk, which only
we would) with AdamW, warmup, decay and clipping at 1. Without dropout the two curves should coincide; with dropout they
differ by its random numbers. Validation is the same for both: the weights of `transformers` are loaded into our model
for it.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import transformers
from learning import NUM_POINTS, compared, draw, report, their_optimizer

from hornbook.config import with_overrides
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceSampler
from hornbook.interop.folder import load_weights
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.gpt import Gpt2
from hornbook.objectives.clm import ClmObjective
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import set_learning_rate
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch
from hornbook.train.settings import OptimizerSettings, RuntimeSettings, ScheduleSettings
from hornbook.train.validation import validate


class Comparison:
    """The data, settings and validation that both sides share."""

    def __init__(self, args: argparse.Namespace, corpus: Corpus, runtime: Runtime):
        self.args, self.corpus, self.runtime = args, corpus, runtime
        num_layers, width = map(int, args.size.split("x"))
        size = {"num_layers": num_layers, "width": width, "num_heads": width // 64, "inner_width": 4 * width}
        of_text = {"vocab_size": corpus.tokenizer.vocab_size, "max_positions": args.length}
        dropouts = {f"{part}dropout": args.dropout for part in ("", "attention_", "embedding_")}
        self.config = with_overrides(PRESETS["gpt2-small"].model, size | of_text | dropouts)
        self.objective = ClmObjective()
        self.schedule = ScheduleSettings(steps=args.steps, warmup_fraction=0.1)
        self.optimizer_settings = OptimizerSettings(lr=args.lr, beta2=0.95, eps=1e-8, weight_decay=0.1)
        self.num_sequences = args.batch_tokens // args.length
        held_out = self._sampler(0, held_out=True)
        num_batches = min(8, max(1, sum(chunks.total for chunks in held_out.chunks) // self.num_sequences))
        self.held_out = [held_out.batch(i, self.num_sequences) for i in range(num_batches)]
        self.points = {round(args.steps * (i + 1) / NUM_POINTS) for i in range(NUM_POINTS)}

    def _sampler(self, seed: int, held_out: bool = False) -> SequenceSampler:
        chunks = {"layout": "documents", "crosses_documents": True, "held_out": held_out}
        return SequenceSampler([(self.corpus, 1.0)], self.args.length, seed, **chunks)

    def batches(self, seed: int):
        """Drops the few batches with a shorter chunk (the last of the text), which would need padding."""
        sampler, number, taken = self._sampler(seed), 0, 0
        while taken < self.args.steps:
            batch = sampler.batch(number, self.num_sequences)
            number += 1
            if batch.num_tokens == self.num_sequences * self.args.length:
                labels_T = batch.labels_T.clone()
                labels_T[batch.offsets[1:].long() - 1] = -1
                yield taken, batch.with_values("tokens", labels_T=labels_T).to(self.runtime.device)
                taken += 1

    def measured(self, model: Gpt2) -> dict[str, float]:
        return validate(TrainingModule(model, self.objective), self.held_out, self.runtime)

    def their_model(self, seed: int) -> transformers.GPT2LMHeadModel:
        torch.manual_seed(seed)
        settings = transformers.GPT2Config.from_dict(Gpt2(self.config, ("clm",)).hf_config())
        return transformers.GPT2LMHeadModel(settings).to(self.runtime.device)

    def as_ours(self, model: transformers.GPT2LMHeadModel) -> Gpt2:
        """Our model with the same weights."""
        copy = Gpt2(self.config, ("clm",))
        weights = {k: v.detach().cpu() for k, v in model.state_dict().items() if k != "lm_head.weight"}
        load_weights(copy, weights, Path("transformers"))
        return copy.to(self.runtime.device)


def theirs(shared: Comparison, seed: int) -> dict[int, dict]:
    model = shared.their_model(seed)
    optimizer = their_optimizer(model, shared.optimizer_settings)
    curve = {}
    for number, batch in shared.batches(seed):
        model.train()
        ids = batch.ids_T.view(shared.num_sequences, shared.args.length)
        with shared.runtime.autocast():
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        set_learning_rate(optimizer, shared.args.lr * shared.schedule.lr_ratio(number))
        optimizer.step()
        optimizer.zero_grad()
        if number + 1 in shared.points:
            curve[number + 1] = shared.measured(shared.as_ours(model))
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--size", default="6x384", help="layers x width")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--out", default="language_learning.json")
    args = parser.parse_args()
    runtime = choose_runtime(RuntimeSettings(compile="no"), 0)
    configure_torch(runtime)
    print(runtime.description, "torch", torch.__version__, "transformers", transformers.__version__)
    with tempfile.TemporaryDirectory() as folder:
        build_corpus([args.data], args.vocabulary, folder)
        shared = Comparison(args, Corpus(folder), runtime)
        curves = compared(shared, theirs, model_flops_per_token(shape_of(shared.config, args.length, 1.0, "clm")))
    report(curves, "clm")
    draw(curves, Path(args.out).with_suffix(".png"), "clm", "next-token loss")


if __name__ == "__main__":
    main()
