"""The files of a model folder: their names, and which of them hold the weights."""

from pathlib import Path

from hornbook.files import read_json, read_json_if_exists

WEIGHTS = "model.safetensors"
ONNX_FILE = "model.onnx"
OTHER_FOLDERS = {"manifest.json": "a corpus", "index.json": "an index", "relations.tsv": "a graph"}
OTHER_FOLDERS |= {"tokenizer.json": "a tokenizer"}  # which a corpus has too
MOST_NAMED = 5


def checked_config_file(folder: Path) -> Path:
    """The `config.json` of a model folder; raises a `ValueError` if the folder has none."""
    file = folder / "config.json"
    if file.is_file():
        return file
    models = sorted(str(each.parent) for each in folder.glob("*/config.json"))
    if models:
        raise ValueError(
            f"{folder} is not a model folder, but holds {', '.join(models[:MOST_NAMED])}: give one of them"
        )
    kind = next((kind for name, kind in OTHER_FOLDERS.items() if (folder / name).is_file()), None)
    holds = "" if kind is None else f", but {kind}"
    raise ValueError(f"{folder} is not a model folder{holds}: it has no config.json")


def holds_gpt(folder: Path) -> bool:
    """Whether a folder holds a GPT, by its `config.json`; False for a folder without one, such as that of a
    tokenizer."""
    return "gpt" in str(read_json_if_exists(folder / "config.json").get("model_type"))


def weights_file(folder: Path) -> Path:
    """The file to name in an error."""
    index = folder / f"{WEIGHTS}.index.json"
    return index if index.exists() and not (folder / WEIGHTS).exists() else folder / WEIGHTS


def weights_files(folder: Path) -> list[Path]:
    """Returns the weight files of a folder; pickles are refused."""
    index = folder / f"{WEIGHTS}.index.json"
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ValueError(f"{index} has no weight_map of names to files: copy it again from its source")
        if foreign := next((name for name in names.values() if Path(name).name != name), None):
            raise ValueError(
                f"{index} names {foreign!r}, which is not a file in its own folder: copy it again from its source"
            )
        return [folder / name for name in sorted(set(names.values()))]
    pickles = sorted([*folder.glob("*model*.bin"), *folder.glob("*.pt"), *folder.glob("*.ckpt*")])
    if pickles:
        raise ValueError(
            f"{pickles[0]} is a pickle, which can run arbitrary code when opened, and is refused; convert it with: "
            'python -c "from transformers import AutoModelForPreTraining as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    if (folder / ONNX_FILE).is_file():
        raise ValueError(
            f"{folder} holds an exported model ({ONNX_FILE}), which only predict, evaluate and compare can use: give "
            "the original run or model"
        )
    raise ValueError(
        f"{folder} has no {WEIGHTS}: it holds no model, or only a pickle, which is neither downloaded nor opened; "
        "load it in transformers and save it with save_pretrained"
    )
