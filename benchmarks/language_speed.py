"""GPT-2 pre-training speed in tokens per second, compared with `transformers` in one run on one GPU.

    python benchmarks/language_speed.py --data corpus.txt --vocabulary DIR [--preset gpt2-small] [--minutes-each 0.25]

Both sides train on the same chunks of real text, all of the same length and each one sequence, from the same loader
processes, in bfloat16 autocast with fused AdamW and the same dropout, and predict every next token. `--documents`
restricts attention to documents, as our runs do by default; `transformers` does not support it and attends across them.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
import transformers
from pretraining_speed import matmul_rate, timed

from hornbook.batch import Batch
from hornbook.config import with_overrides
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.loader import batches
from hornbook.data.sequences import SequenceSampler
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.gpt import Gpt2
from hornbook.objectives.clm import ClmObjective
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import choose_runtime, configure_torch
from hornbook.train.settings import OptimizerSettings, RuntimeSettings
from hornbook.train.step import Stepper

PROFILED_STEPS = 3


def ours(config, make, args, runtime) -> tuple[float, float]:
    model = Gpt2(config, ("clm",))
    model.initialize(torch.Generator().manual_seed(0))
    model.to(runtime.device)
    objective = ClmObjective()
    model.compile_parts()
    objective.compile()
    stepper = Stepper(
        TrainingModule(model, objective),
        make_optimizer(model, OptimizerSettings()),
        runtime,
        0,
        1.0,
        args.batch * args.length,
    )
    made = batches(make, range(1_000_000), args.workers, runtime.device)

    def train_step(batch: Batch, number: int) -> int:
        if batch.num_tokens != args.batch * args.length:  # the last chunk of the text is shorter
            return 0
        return stepper.train_step(batch, number, 1e-4).num_tokens

    found = timed(train_step, made, args.minutes_each * 60, runtime.device)
    if args.profile:
        profile(train_step, made)
    return found


def profile(train_step, made) -> None:
    """The kernels that take most of the time of a step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for number, batch in zip(range(PROFILED_STEPS), made, strict=False):
            train_step(batch, number)
        torch.cuda.synchronize()
    print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=30, max_name_column_width=90))


def theirs(config, make, args, runtime, compiled: bool) -> tuple[float, float]:
    settings = Gpt2(config, ("clm",)).hf_config()
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_dict(settings)).to(runtime.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    forward = torch.compile(model) if compiled else model
    made = batches(make, range(1_000_000), args.workers, runtime.device)

    def train_step(batch: Batch, number: int) -> int:
        if batch.num_tokens != args.batch * args.length:
            return 0
        ids = batch.ids_T.view(args.batch, args.length)
        with runtime.autocast():
            loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return ids.numel()

    return timed(train_step, made, args.minutes_each * 60, runtime.device)


class Maker:
    def __init__(self, sampler: SequenceSampler, num_sequences: int):
        self.sampler, self.num_sequences = sampler, num_sequences

    def __call__(self, number: int) -> Batch:
        return self.sampler.batch(number, self.num_sequences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text file, documents separated by blank lines")
    parser.add_argument("--vocabulary", required=True, help="a tokenizer folder, such as the published one of GPT-2")
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32, help="sequences")
    parser.add_argument("--dropouts", default="0.1")
    parser.add_argument("--sides", default="ours,captured,compiled,eager")
    parser.add_argument("--documents", action="store_true")
    parser.add_argument("--minutes-each", type=float, default=0.25)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--profile", action="store_true", help="also print where our steps spend their time")
    parser.add_argument("--out", help="write the rows as JSON here")
    args = parser.parse_args()

    runtime = choose_runtime(RuntimeSettings(compile="yes", cuda_graphs=False), 1e20)
    captured = choose_runtime(RuntimeSettings(compile="yes"), 1e20)
    configure_torch(runtime)
    matmul = matmul_rate(runtime.device)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{captured.description}; {versions}; matmul {matmul:.0f} TFLOP/s")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        build_corpus([args.data], args.vocabulary, folder, workers=8)
        corpus = Corpus(folder)
        sampler = SequenceSampler(
            [(corpus, 1.0)], args.length, 0, layout="documents", crosses_documents=not args.documents, held_out=False
        )
        for dropout in map(float, args.dropouts.split(",")):
            same = {f"{part}dropout": dropout for part in ("", "attention_", "embedding_")}
            config = with_overrides(PRESETS[args.preset].model, same | {"vocab_size": corpus.tokenizer.vocab_size})
            flops = model_flops_per_token(shape_of(config, args.length, 1.0, "clm"))
            for side in args.sides.split(","):
                torch.manual_seed(0)
                torch.compiler.reset()
                torch.cuda.empty_cache()
                make = Maker(sampler, args.batch)
                if side in ("ours", "captured"):
                    speed, warm = ours(config, make, args, captured if side == "captured" else runtime)
                else:
                    speed, warm = theirs(config, make, args, runtime, side == "compiled")
                rows.append(
                    {
                        "dropout": dropout,
                        "side": side,
                        "tokens_per_second": round(speed),
                        "useful_tflops": round(speed * flops / 1e12, 1),
                        "of_matmul": round(speed * flops / 1e12 / matmul, 3),
                        "warm_up_seconds": round(warm, 1),
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        mine = [r for r in rows if r["dropout"] == row["dropout"] and r["side"] in ("ours", "captured")]
        if mine and row["side"] in ("compiled", "eager"):
            best = max(mine, key=lambda r: r["tokens_per_second"])
            ratio = best["tokens_per_second"] / row["tokens_per_second"]
            print(f"dropout {row['dropout']}: {best['side']} is {ratio:.2f} x {row['side']}")
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
