"""Embedding settings in the files of `sentence-transformers`: pooling, normalisation, prompts and maximum length.

modules.json                        the layers: Transformer, Pooling and optionally Normalize
1_Pooling/config.json               how tokens are pooled
sentence_bert_config.json           the maximum length in tokens, and whether texts are lower-cased first
tokenizer_config.json               the maximum length where the file above does not have it, as from version 6 on
config_sentence_transformers.json   prompts, and the similarity function
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hornbook.files import read_json, refusing_damage, write_json

EmbeddingPooling = Literal["mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens"]
POOLINGS: dict[EmbeddingPooling, str] = {
    "mean": "mean over the tokens",
    "cls": "first token",
    "max": "maximum over the tokens",
    "lasttoken": "last token",
    "mean_sqrt_len_tokens": "sum over the tokens divided by the root of their number",
}
MODULES = "modules.json"
LENGTH = "sentence_bert_config.json"
TOKENIZER = "tokenizer_config.json"
UNLIMITED = 10**6  # a tokenizer without a limit has a huge one
PROMPTS = "config_sentence_transformers.json"
LAYERS = ("Transformer", "Pooling", "Normalize")
SIMILARITIES = ("cosine", "dot")
DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # in the order in which `sentence-transformers` looks for them
_LEGACY = "pooling_mode_"  # prefix of one flag per pooling, which all versions read
_FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
_FLAGS |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}


@dataclass(frozen=True)
class EmbeddingSettings:
    """How a model turns a text into a vector. `max_length`: maximum number of tokens, None: the model's limit;
    `prompts`: texts put before an input, by name; `similarity`: how two vectors are compared; `is_default`: the folder
    does not have the files of `sentence-transformers`."""

    pooling: EmbeddingPooling = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: Literal["cosine", "dot"] = "cosine"
    is_default: bool = False

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            *others, last = POOLINGS
            raise ValueError(f"pooling must be {', '.join(others)} or {last}, not '{self.pooling}'")

    @property
    def description(self) -> str:
        """The settings as a log line."""
        source = "default, as the model folder has no modules.json" if self.is_default else "from the model folder"
        parts = [f"{POOLINGS[self.pooling]} ({source})"]
        parts += ["normalised"] if self.normalize else []
        parts += [f"at most {self.max_length} tokens"] if self.max_length else []
        parts += [f"prompts: {', '.join(self.prompts)}"] if any(self.prompts.values()) else []
        return f"pooling: {'; '.join(parts)}"

    def prompt(self, name: str | None) -> str:
        """The text put before an input. `name`: a prompt of the model, or the text itself; None: the default prompt.
        `query` and `document` are empty if the model has no such prompts."""
        if name is None:
            return self.prompts.get(self.default_prompt or "", "")
        for candidate in DOCUMENT_PROMPTS if name == "document" else (name,):
            if candidate in self.prompts:
                return self.prompts[candidate]
        return self.prompt(None) if name in ("query", "document") else name

    def refuse_lower_case(self, folder: Path) -> None:
        """For code that cannot lower-case texts before they are tokenized."""
        if self.lower_case:
            raise ValueError(
                f"{folder} lower-cases texts before its tokenizer, which only embed and search support: lower-case "
                f"your texts, and set do_lower_case to false in {LENGTH}"
            )

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "is_default"}


def read_embedding_settings(folder: Path) -> EmbeddingSettings:
    """The embedding settings of a model folder; mean pooling if `sentence-transformers` did not write it."""
    if not (folder / MODULES).is_file():
        return EmbeddingSettings(is_default=True)
    modules = read_json(folder / MODULES, list)
    with refusing_damage(folder / MODULES):
        layers = {str(each["type"]).rpartition(".")[2]: str(each["path"]) for each in modules}
        unknown = next((name for name in layers if name not in LAYERS), None)
    if unknown:
        raise ValueError(
            f"{folder / MODULES} has a {unknown} layer, but only {', '.join(LAYERS)} are supported: use another model"
        )
    values: dict[str, Any] = {"normalize": "Normalize" in layers}
    pooling = folder / layers.get("Pooling", "1_Pooling") / "config.json"
    for file, read in ((pooling, _pooling_in), (folder / LENGTH, _length_in), (folder / PROMPTS, _prompts_in)):
        if file.is_file():
            with refusing_damage(file):
                values |= read(read_json(file))
    for name, supported in (("pooling", POOLINGS), ("similarity", SIMILARITIES)):
        if values.get(name, next(iter(supported))) not in supported:
            raise ValueError(
                f"{folder} has the {name} '{values[name]}', but only {', '.join(supported)} are supported: use another "
                "model"
            )
    if values.get("max_length") is None and (folder / TOKENIZER).is_file():
        with refusing_damage(folder / TOKENIZER):
            values["max_length"] = _tokenizer_length_in(read_json(folder / TOKENIZER))
    if values.get("prompts") and pooling.is_file() and read_json(pooling).get("include_prompt") is False:
        raise ValueError(f"{pooling} leaves prompts out of the pooling, which is not supported: use another model")
    return EmbeddingSettings(**values)


def _pooling_in(config: dict[str, Any]) -> dict[str, Any]:
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [ours for ours, flag in _FLAGS.items() if config.get(_LEGACY + flag)]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if not modes:
        raise ValueError("it names no pooling")
    return {"pooling": ", ".join(modes)}


def _length_in(config: dict[str, Any]) -> dict[str, Any]:
    max_length = config.get("max_seq_length")
    max_length = None if max_length is None else int(max_length)
    return {"max_length": max_length, "lower_case": bool(config.get("do_lower_case"))}


def _tokenizer_length_in(config: dict[str, Any]) -> int | None:
    max_length = config.get("model_max_length")
    return None if max_length is None or max_length >= UNLIMITED else int(max_length)


def _prompts_in(config: dict[str, Any]) -> dict[str, Any]:
    similarity = str(config.get("similarity_fn_name") or "cosine")
    prompts = {str(name): str(text) for name, text in (config.get("prompts") or {}).items()}
    return {"prompts": prompts, "default_prompt": config.get("default_prompt_name"), "similarity": similarity}


def write_embedding_settings(folder: Path, settings: EmbeddingSettings, width: int) -> None:
    """Writes the files with which `sentence-transformers` opens a model folder; `modules.json` last."""
    flags = {_LEGACY + flag: ours == settings.pooling for ours, flag in _FLAGS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width} | flags)
    write_json(folder / LENGTH, {"max_seq_length": settings.max_length, "do_lower_case": settings.lower_case})
    prompts = {"prompts": dict(settings.prompts), "default_prompt_name": settings.default_prompt}
    write_json(folder / PROMPTS, prompts | {"similarity_fn_name": settings.similarity})
    names = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] * settings.normalize)]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (path, name) in enumerate(names)
    ]
    write_json(folder / MODULES, modules)
