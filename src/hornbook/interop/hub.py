"""Resolves a path, the name of a built-in model or a Hugging Face name to a model folder; models of the hub are
downloaded once and cached."""

from pathlib import Path

from hornbook.interop.builtin import builtin_folder

PATTERNS = [
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*.json",
    "vocab.*",
    "special_tokens_map.json",
    "added_tokens.json",
    "modules.json",  # and the other settings of embeddings, as `sentence-transformers` writes them
    "*_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
]


def model_folder(name: str | Path) -> Path:
    """Returns the folder of a model: an existing path as it is, a built-in model such as `en`, or `name` or
    `owner/name` downloaded from the hub."""
    path = Path(name)
    if path.is_dir():
        return path
    text = str(name)
    if (folder := builtin_folder(text)) is not None:
        return folder
    if path.is_file():
        raise ValueError(f"{text} is a file: give the folder that holds config.json and model.safetensors")
    if text.startswith((".", "/", "~")) or text.count("/") > 1 or not text:
        raise ValueError(f"there is no folder {text}: check the path")
    return _downloaded(text)


def _downloaded(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except LocalEntryNotFoundError:
        reason = "it is not in the cache, and the hub cannot be reached or HF_HUB_OFFLINE is set"
    except HFValidationError:
        reason = "it is not a valid hub name"
    except HfHubHTTPError as error:
        reason = f"the hub answered: {str(error).splitlines()[0]}"
    except OSError as error:
        reason = f"the hub cannot be reached ({str(error).splitlines()[0]})"
    raise ValueError(
        f"there is no folder '{name}', and no model of that name could be downloaded: {reason}; "
        "give the path of a folder"
    )
