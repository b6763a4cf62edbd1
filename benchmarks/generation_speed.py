"""Generation speed in tokens per second, compared with `transformers.generate` in alternation in one run.

    python benchmarks/generation_speed.py [--preset gpt2-small] [--batches 1,32] [--new-tokens 256] [--device cuda]

Both sides have the same random weights and the same prompts of `--prompt-tokens` random tokens, and decode greedily.
`transformers` runs with its dynamic and with its static cache, for which it compiles by default on CUDA; ours is
compared with the better of the two. On a CPU everything is float32, and ours also runs with int8 weights; on CUDA
everything is bfloat16. Each side generates once before timing starts; then they alternate, and medians are compared. In
float32 both sides must generate the same tokens. The lower bound is the time of the matrix products alone.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers

from hornbook.config import with_overrides
from hornbook.inference.generation import GenerationConfig, generate
from hornbook.inference.load import gpt_matrices
from hornbook.interop.folder import save_model
from hornbook.models.gpt import Gpt2
from hornbook.nn.single_token import to_column_major
from hornbook.runs.pretraining.presets import PRESETS

LOUDER = 6.0  # factor of the initial weights; as published, a random model repeats its last token forever


class NoText:
    """A tokenizer without text: tokens are compared but not decoded, as in `transformers.generate`."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def decode(self, ids: list[int]) -> str:
        return ""


def random_model(preset: str, num_layers: int | None) -> Gpt2:
    config = PRESETS[preset].model
    model = Gpt2(with_overrides(config, {"num_layers": num_layers or config.num_layers})).eval()
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for block in model.blocks:
            for part in (block.attention.qkv, block.attention.out, block.fc1, block.fc2):
                part.weight.mul_(LOUDER)
    return model


def ours(model: Gpt2, prompts: list[list[int]], num_new: int) -> list[list[int]]:
    request = GenerationConfig(max_new_tokens=num_new, temperature=0.0)
    return [its[0].ids for its in generate(model, NoText(model.config.vocab_size), prompts, request)]


def theirs(model, prompts: list[list[int]], num_new: int, cache: str, device: str) -> list[list[int]]:
    ids = torch.tensor(prompts, device=device)
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=num_new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        cache_implementation=cache,
    )
    return found[:, ids.shape[1] :].tolist()


def products(model: Gpt2, num: int) -> None:
    """Every matrix product of a step and nothing else."""
    with torch.inference_mode():
        inputs = {}
        parts = [(p.weight, p.bias) for p in model.modules() if isinstance(p, torch.nn.Linear)]
        for weight, bias in [*parts, (model.embeddings.tokens.weight, None)]:
            width = weight.shape[1]
            if width not in inputs:
                inputs[width] = torch.zeros(num, width, dtype=weight.dtype, device=weight.device)
            F.linear(inputs[width], weight, bias)


def timed(run: Callable[[], object], args: argparse.Namespace) -> tuple[object, float]:
    clock = time.process_time if args.processor_time else time.perf_counter
    start = clock()
    found = run()
    if args.device == "cuda":
        torch.cuda.synchronize()
    return found, clock() - start


def shares_the_same(first: list[list[int]], second: list[list[int]]) -> float:
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


def compare(model: Gpt2, quantized: Gpt2 | None, reference, num: int, args: argparse.Namespace) -> list[dict]:
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(0, model.config.vocab_size, (num, args.prompt_tokens), generator=generator).tolist()
    sides: dict[str, Callable[[], object]] = {"ours": lambda: ours(model, prompts, args.new_tokens)}
    if quantized is not None:
        sides["ours, int8 weights"] = lambda: ours(quantized, prompts, args.new_tokens)
    for cache in args.caches.split(","):
        sides[f"transformers, {cache} cache"] = lambda cache=cache: theirs(
            reference, prompts, args.new_tokens, cache, args.device
        )
    written, seconds = {}, {name: [] for name in sides}
    for name, run in sides.items():
        written[name], first = timed(run, args)
        print(f"batch {num}: {name} wrote once in {first:.1f} s", flush=True)
    for _ in range(args.repeats):
        for name, run in sides.items():
            seconds[name].append(timed(run, args)[1])
    # On CUDA it would be the time of launching them.
    floor = min(timed(lambda: products(model, num), args)[1] for _ in range(20)) if args.device == "cpu" else None
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    best = min(medians[name] for name in sides if name.startswith("transformers"))
    least = min(min(seconds[name]) for name in sides if name.startswith("transformers"))
    rows = []
    for name in sides:
        rows.append(
            {
                "batch": num,
                "side": name,
                "tokens_per_second": round(num * args.new_tokens / medians[name], 1),
                "milliseconds_per_step": round(1000 * medians[name] / args.new_tokens, 3),
                "times_transformers_best": round(best / medians[name], 3),
                "times_by_fastest_repeats": round(least / min(seconds[name]), 3),
                "same_text_as_ours": shares_the_same(written["ours"], written[name]),
                "floor_milliseconds": floor and round(1000 * floor, 3),
                "seconds": [round(each, 3) for each in seconds[name]],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    if args.device == "cpu":
        for name in sides:
            assert "int8" in name or written[name] == written["ours"], f"{name} wrote another text than ours"
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--layers", type=int, help="so many blocks instead of the preset's")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--caches", default="dynamic,static")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, help="of the CPU; all cores")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count time on the processor and not by the clock: on a machine that others use, with --threads 1",
    )
    parser.add_argument("--out", help="write the rows as JSON here")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    kind = torch.bfloat16 if args.device == "cuda" else torch.float32
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{where}, {kind}; torch {torch.__version__}, transformers {transformers.__version__}")
    model = random_model(args.preset, args.layers)
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), model)
        reference = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=kind).to(args.device).eval()
    quantized = random_model(args.preset, args.layers).quantize() if args.device == "cpu" else None
    to_column_major(gpt_matrices(model))  # as `hornbook.load` does
    model.to(args.device, kind)
    rows = []
    for num in map(int, args.batches.split(",")):
        rows += compare(model, quantized, reference, num, args)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
