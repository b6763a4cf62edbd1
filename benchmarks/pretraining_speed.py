"""MLM pre-training speed in tokens per second, compared with `transformers` (eager and compiled), in one run on one
GPU.

    python benchmarks/pretraining_speed.py --data corpus.txt --vocabulary DIR [--preset bert-base] [--minutes-each 0.5]

Both sides train on the same sequences: pairs of real text with their real lengths, from the same loader processes, in
bfloat16 autocast with fused AdamW and the same dropout. `transformers` gets them padded to the longest of the batch, as
its collators do, and computes the vocabulary head at every position, as its models do. Only real tokens are counted.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers

from hornbook.batch import Batch
from hornbook.config import with_overrides
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.loader import batches
from hornbook.data.sequences import SequenceSampler
from hornbook.models.bert import Bert
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.mlm import MlmObjective
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import choose_runtime, configure_torch
from hornbook.train.settings import OptimizerSettings, RuntimeSettings
from hornbook.train.step import Stepper

WARM_STEPS = 8
STEPS_BETWEEN_LOOKS = 20  # steps between timings, which synchronise the device; training synchronises as rarely


class Padded:
    """The same batch padded, masked in the loader process as in `transformers`' collator."""

    def __init__(self, make, mask_id: int, vocab_size: int):
        self.make, self.mask_id, self.vocab_size = make, mask_id, vocab_size

    def __call__(self, number: int) -> "PaddedBatch":
        batch: Batch = self.make(number)
        offsets, ids_T = batch.offsets_host, batch.ids_T.numpy()
        lengths = np.diff(offsets)
        shape = (len(lengths), int(lengths.max()))
        mask = np.arange(shape[1]) < lengths[:, None]
        ids, segments, labels = (np.zeros(shape, np.int64) for _ in range(3))
        ids[mask], segments[mask] = ids_T, batch.segments_T.numpy()
        random = np.random.default_rng(number)
        chosen = mask & (random.random(shape) < 0.15)
        labels = np.where(chosen, ids, -100)
        coin = random.random(shape)
        ids = np.where(chosen & (coin < 0.8), self.mask_id, ids)
        ids = np.where(chosen & (coin >= 0.9), random.integers(0, self.vocab_size, shape), ids)
        tensors = {
            "input_ids": torch.from_numpy(ids),
            "token_type_ids": torch.from_numpy(segments),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(labels),
        }
        return PaddedBatch(tensors, int(lengths.sum()))


class PaddedBatch:
    def __init__(self, tensors: dict, num_tokens: int):
        self.tensors, self.num_tokens = tensors, num_tokens

    def pin_memory(self) -> "PaddedBatch":
        return PaddedBatch({k: v.pin_memory() for k, v in self.tensors.items()}, self.num_tokens)

    def to(self, device) -> "PaddedBatch":
        return PaddedBatch({k: v.to(device, non_blocking=True) for k, v in self.tensors.items()}, self.num_tokens)


def timed(take_step, made, seconds: float, device) -> tuple[float, float]:
    """(tokens per second over whole steps after warmup, seconds of warmup)."""
    began = time.monotonic()
    tokens = steps = 0
    for number, batch in enumerate(made):
        if number == WARM_STEPS:
            torch.cuda.synchronize(device)
            start = time.monotonic()
            tokens = steps = 0
        tokens += take_step(batch, number)
        steps += 1
        if number > WARM_STEPS and steps % STEPS_BETWEEN_LOOKS == 0:
            torch.cuda.synchronize(device)
            if time.monotonic() - start > seconds:
                break
    return tokens / (time.monotonic() - start), start - began


def ours(config, make, args, runtime, special) -> tuple[float, float]:
    model = Bert(config, ("mlm",))
    model.initialize(torch.Generator().manual_seed(0))
    model.to(runtime.device)
    objective = MlmObjective(Masking(MaskingSettings(), config.vocab_size, *special), sentence="none")
    if runtime.compiles:
        model.compile_parts()
        objective.compile()
    optimizer = make_optimizer(model, OptimizerSettings())
    stepper = Stepper(TrainingModule(model, objective), optimizer, runtime, 0, 1.0, args.micro_tokens)
    made = batches(make, range(1_000_000), args.workers, runtime.device)

    def train_step(batch: Batch, number: int) -> int:
        return stepper.train_step(batch, number, 1e-4).num_tokens

    return timed(train_step, made, args.minutes_each * 60, runtime.device)


def theirs(config, make, args, runtime, special, compiled: bool) -> tuple[float, float]:
    settings = Bert(config, ("mlm",)).hf_config()
    model = transformers.BertForMaskedLM(transformers.BertConfig.from_dict(settings)).to(runtime.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    forward = torch.compile(model, dynamic=args.dynamic_theirs) if compiled else model
    made = batches(Padded(make, special[0], config.vocab_size), range(1_000_000), args.workers, runtime.device)

    def train_step(batch: PaddedBatch, number: int) -> int:
        whole = batch.tensors
        rows = len(whole["input_ids"])
        num_parts = max(1, round(whole["input_ids"].numel() / args.micro_tokens))
        size = -(-rows // num_parts)
        for first in range(0, rows, size):
            part = {name: value[first : first + size] for name, value in whole.items()}
            with runtime.autocast():
                loss = forward(**part).loss
            (loss / num_parts).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return batch.num_tokens

    return timed(train_step, made, args.minutes_each * 60, runtime.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text file, documents separated by blank lines")
    parser.add_argument("--vocabulary", required=True, help="a tokenizer folder, such as the one of bert-base-uncased")
    parser.add_argument("--preset", default="bert-base")
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--attention-dropouts", default="0.1,0.0")
    parser.add_argument("--sides", default="ours,compiled,eager")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--micro-tokens", type=int, default=65_536)
    parser.add_argument("--minutes-each", type=float, default=0.25)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--dynamic-theirs", action="store_true", default=None)
    parser.add_argument("--out", help="write the rows as JSON here")
    args = parser.parse_args()

    runtime = choose_runtime(RuntimeSettings(compile="yes"), 1e20)
    configure_torch(runtime)
    matmul = matmul_rate(runtime.device)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{runtime.description}; {versions}; matmul {matmul:.0f} TFLOP/s")
    with tempfile.TemporaryDirectory() as folder:
        build_corpus([args.data], args.vocabulary, folder, workers=8)
        corpus = Corpus(folder)
        tokenizer = corpus.tokenizer
        special = (tokenizer.mask_id, tokenizer.special_ids)
        rows = []
        for length in map(int, args.lengths.split(",")):
            make = _Maker(SequenceSampler([(corpus, 1.0)], length, 0, layout="nsp"), args.batch_tokens // length)
            sizes = [np.diff(make(i).offsets_host) for i in range(4)]
            real = float(np.mean([size.mean() for size in sizes]))
            for dropout in map(float, args.attention_dropouts.split(",")):
                config = with_overrides(
                    PRESETS[args.preset].model, {"attention_dropout": dropout, "vocab_size": tokenizer.vocab_size}
                )
                flops = model_flops_per_token(shape_of(config, length, 0.15))
                for side in args.sides.split(","):
                    torch.manual_seed(0)
                    torch.compiler.reset()
                    torch.cuda.empty_cache()
                    if side == "ours":
                        speed, warm = ours(config, make, args, runtime, special)
                    else:
                        speed, warm = theirs(config, make, args, runtime, special, side == "compiled")
                    row = {
                        "length": length,
                        "mean_length": round(real, 1),
                        "attention_dropout": dropout,
                        "side": side,
                        "tokens_per_second": round(speed),
                        "useful_tflops": round(speed * flops / 1e12, 1),
                        "of_matmul": round(speed * flops / 1e12 / matmul, 3),
                        "warm_up_seconds": round(warm, 1),
                    }
                    rows.append(row)
                    print(json.dumps(row), flush=True)
        for row in rows:
            same = [
                r for r in rows if (r["length"], r["attention_dropout"]) == (row["length"], row["attention_dropout"])
            ]
            mine = next((r["tokens_per_second"] for r in same if r["side"] == "ours"), None)
            if mine and row["side"] != "ours":
                print(
                    f"length {row['length']}, attention dropout {row['attention_dropout']}: "
                    f"ours is {mine / row['tokens_per_second']:.2f} x {row['side']}"
                )
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1))


class _Maker:
    def __init__(self, sampler: SequenceSampler, num_sequences: int):
        self.sampler, self.num_sequences = sampler, num_sequences

    def __call__(self, number: int) -> Batch:
        return self.sampler.batch(number, self.num_sequences)


def matmul_rate(device, size: int = 8192) -> float:
    """Speed of a plain bf16 matrix product on random data, TFLOP/s."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * size**3 / (time.monotonic() - start) / 1e12


if __name__ == "__main__":
    main()
