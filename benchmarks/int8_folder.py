"""Writes the model and the tokenizer of a run to a folder with int8 weights, as the built-in models have them.

python benchmarks/int8_folder.py RUN FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

from hornbook.files import read_json, write_text
from hornbook.interop.folder import load_folder, save_model


def write_int8_folder(run: Path, out: Path) -> int:
    """Writes the model and the tokenizer of a run to `out` with int8 weights; returns the size of the folder in
    bytes."""
    model, tokenizer = load_folder(run)
    tokenizer.save(out, model.config.max_positions, model.config.num_segments)
    compact = json.dumps(read_json(out / "tokenizer.json"), ensure_ascii=False, separators=(",", ":"))
    write_text(out / "tokenizer.json", compact)
    save_model(out, model, weights="int8")
    if (Path(run) / "README.md").is_file():
        shutil.copy(Path(run) / "README.md", out)
    return sum(file.stat().st_size for file in Path(out).iterdir())


if __name__ == "__main__":
    print(f"{write_int8_folder(Path(sys.argv[1]), Path(sys.argv[2])) / 1e6:.2f} MB")
