"""Resolves the name of a model to a folder: an existing folder, one of the built-in models (small encoders with int8
weights inside the package, which are used when no model is named), or a download from the Hugging Face Hub.

`docs/builtin-models.md` has the commands that made the built-in models.
"""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

BUILTIN_MODELS = Path(__file__).parents[1] / "builtin"
PRESETS = """
    bert-tiny bert-mini bert-small bert-medium bert-base bert-large tinybert-4 tinybert-6 distilbert distilgpt2
    albert-base albert-large albert-xlarge albert-xxlarge roberta-base roberta-large gpt-bert-small gpt-bert-base
    electra-small electra-base electra-large ernie-tiny ernie-small ernie-base gpt1-base gpt2-tiny gpt2-mini gpt2-small
    gpt2-medium gpt2-large gpt2-xl gpt3-125m gpt3-350m gpt3-760m gpt3-1.3b gpt3-2.7b gpt3-6.7b gpt3-13b gpt3-175b
"""  # the names in runs/pretraining/presets.py, which look like models on the hub, and some are
LANGUAGES = {"en": "English", "ko": "Korean"}
DEFAULT = "en"
NUM_TEXTS = 200  # that are looked at to recognise the language
HANGUL = range(0xAC00, 0xD7A4)
LAST_LATIN = 0x24F  # extended Latin B; beyond it are Greek, Cyrillic and the other scripts
PATTERNS = [  # uploaded and downloaded
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*.json",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "modules.json",  # and the other settings of embeddings, as `sentence-transformers` writes them
    "*_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "task.json",  # the threshold, tag scheme and maximum length of a fine-tuned model
]


def model_folder(name: str | Path) -> Path:
    """Returns the folder of a model: an existing path as it is, a built-in model such as `en`, or `name` or
    `owner/name` downloaded from the hub. A folder `en` that holds no model, such as one of texts, does not hide the
    built-in model."""
    path, text = Path(name).expanduser(), str(name)
    builtin = builtin_folder(text)
    if builtin is not None and not (path / "config.json").is_file():
        return builtin
    if os.path.isdir(path):  # Path.is_dir raises if a text that was not quoted is too long for the name of a file
        return path
    if os.path.isfile(path):
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
    if "/" in name and Path(name).parent.is_dir():
        raise ValueError(f"there is no folder {name}: check the path")
    if is_preset(name):
        raise ValueError(
            f"{name} is a preset, not a model: pre-train it first with 'hornbook pretrain {name}', and give the folder "
            f"of that run, or a built-in model ({', '.join(builtin_names())}); no model of that name could be "
            f"downloaded: {reason}"
        )
    raise ValueError(
        f"there is no folder '{name}', and no model of that name could be downloaded: {reason}; "
        "give the path of a folder"
    )


def is_preset(name: str) -> bool:
    """Whether this is the name of a preset: settings of a model that is not trained."""
    return name in PRESETS.split()


def builtin_names() -> list[str]:
    return [name for name in LANGUAGES if (BUILTIN_MODELS / name / "config.json").is_file()]


def builtin_folder(name: str) -> Path | None:
    """The folder of a built-in model, or None if there is none of this name."""
    return BUILTIN_MODELS / name if name in builtin_names() else None


def shown_name(folder: str | Path) -> str:
    """A model in messages: the name of a built-in model, or else its folder.

    >>> shown_name(BUILTIN_MODELS / "en"), shown_name("runs/first")
    ('en', 'runs/first')
    """
    return Path(folder).name if Path(folder).parent == BUILTIN_MODELS else str(folder)


def builtin_for(texts: Iterable[str]) -> str:
    """The name of the built-in model for the language of the texts. A `ValueError` if most of their letters are of a
    script that no built-in model knows.

    >>> builtin_for(["Das ist gut.", "A charming journey."])
    'en'
    """
    letters = [each for text in itertools.islice(texts, NUM_TEXTS) for each in text if each.isalpha()]
    num_hangul = sum(ord(each) in HANGUL for each in letters)
    num_latin = sum(ord(each) <= LAST_LATIN for each in letters)
    if num_hangul > num_latin / 3:  # Korean texts often have Latin names in them
        return "ko"
    if num_latin * 2 < len(letters):
        known = " and ".join(LANGUAGES[name] for name in builtin_names())
        raise ValueError(
            f"the text is mostly in another script, and the built-in models are for {known}: name a model of the "
            "language, such as a run folder or a name on the Hugging Face Hub"
        )
    return DEFAULT
