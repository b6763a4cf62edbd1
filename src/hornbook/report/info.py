"""`hornbook info PATH`: describes a folder from its small files and file headers only."""

import math
from operator import itemgetter
from pathlib import Path

from safetensors import SafetensorError, safe_open

from hornbook.files import read_json, read_json_if_exists, refusing_damage
from hornbook.interop.builtin import builtin_folder
from hornbook.report import formatting
from hornbook.report.comparison import COMPARISON_FILE, describe_comparison
from hornbook.report.experiment import describe_experiment, experiment_lines
from hornbook.report.exported import EXPORT_FILE, describe_exported, exported_lines
from hornbook.report.finetuned import (
    ReportedTaskRun,
    baseline_lines,
    describe_baseline,
    describe_finetuned,
    finetuned_lines,
    format_labels,
    load_run,
)
from hornbook.report.graphs import describe_graph, describe_vectors, graph_lines, is_graph, vector_lines
from hornbook.report.prompting import describe_prompted, prompted_lines
from hornbook.report.run_files import TOKENS, ReportedRun
from hornbook.report.trials import describe_several, is_several
from hornbook.tasks.kinds import KINDS

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
VECTOR_INDEX = "index.json"  # of an index of embedded texts
TEXT_SUFFIXES = {".txt", ".jsonl", ".parquet"}
# Keys of config.json by model family.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTH = ("hidden_size", "n_embd", "dim", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
REPAIR = "restore it, or create the folder again"
DESCRIBERS = {  # by the command that wrote the record
    "baseline": describe_baseline,
    "probe": describe_baseline,
    "prompt": describe_prompted,
    "reproduce": describe_experiment,
    "graph embed": describe_vectors,
}


def describe(path: str | Path) -> dict:
    """Describes a folder: its `kind` (run, fine-tuned run, several runs, baseline, probe, prompted task, comparison,
    experiment, corpus, unfinished corpus, index, unfinished index, graph, graph vectors, model, exported model or
    tokenizer) and the numbers of that kind.

    >>> import hornbook
    >>> hornbook.describe("corpus")["kind"]
    'corpus'
    """
    if not Path(path).exists() and (folder := builtin_folder(str(path))) is not None:
        return describe(folder) | {"folder": str(path)}
    path = Path(path)
    with refusing_damage(path, "restore its JSON files, or create the folder again"):
        return _describe(path)


def _describe(path: Path) -> dict:
    if not path.exists():
        raise ValueError(f"{path} does not exist: give a run, corpus, model or tokenizer folder")
    if path.is_file():
        raise ValueError(_describe_file(path))
    command = _command(path)
    if command in DESCRIBERS:
        with refusing_damage(path / "run.json", REPAIR):
            description = DESCRIBERS[command](path)
    elif command == "label-curve" or is_several(path):
        description = describe_several(path)
    elif command is not None:
        run = load_run(path)
        description = describe_finetuned(run) if isinstance(run, ReportedTaskRun) else _run(run)
    elif (path / COMPARISON_FILE).is_file():
        with refusing_damage(path / COMPARISON_FILE, REPAIR):
            description = describe_comparison(path)
    elif is_graph(path):
        description = describe_graph(path)
    elif (path / "manifest.json").is_file():
        description = _corpus(path)
    elif (path / "progress.json").is_file():
        description = _unfinished_corpus(path)
    elif (path / VECTOR_INDEX).is_file():
        with refusing_damage(path / VECTOR_INDEX, REPAIR):
            description = _index(path)
    elif (path / EXPORT_FILE).is_file():
        description = describe_exported(path)
    elif (path / "config.json").is_file():
        description = _model(path)
    elif (path / "tokenizer.json").is_file():
        description = _tokenizer(path)
    else:
        raise ValueError(
            f"{path} has none of run.json (a run), manifest.json (a corpus), config.json with {WEIGHTS} (a model) and "
            "tokenizer.json (a tokenizer): give a folder that hornbook or transformers wrote"
        )
    return {"folder": str(path), **description}


def _command(path: Path) -> str | None:
    """The command that wrote the run; empty if run.json does not name it, None if there is no run.json."""
    if not (path / "run.json").is_file():
        return None
    return str(read_json(path / "run.json").get("command", ""))


def lines(description: dict) -> list[tuple[str, str]]:
    """The description as (label, text) rows, in print order; empty texts are left out."""
    write = {
        "run": _run_lines,
        "fine-tuned run": finetuned_lines,
        "several runs": itemgetter("lines"),
        "prompted task": prompted_lines,
        "baseline": baseline_lines,
        "probe": baseline_lines,
        "comparison": itemgetter("lines"),
        "experiment": experiment_lines,
        "corpus": _corpus_lines,
        "graph": graph_lines,
        "graph vectors": vector_lines,
        "unfinished corpus": _unfinished_lines,
        "index": _index_lines,
        "unfinished index": _index_lines,
        "model": _model_lines,
        "exported model": exported_lines,
        "tokenizer": _tokenizer_lines,
    }[description["kind"]]
    first = ("what", f"{description['kind']} in {description['folder']}")
    with refusing_damage(description["folder"], "restore its JSON files, or create the folder again"):
        return [first, *((label, text) for label, text in write(description) if text)]


def _describe_file(path: Path) -> str:
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & TEXT_SUFFIXES:
        return (
            f"{path} is a text file: train a tokenizer on it with 'hornbook tokenizer train', build a corpus with "
            "'hornbook corpus build', and pass the corpus folder"
        )
    return f"{path} is a file: pass its folder, {path.parent}"


def _index(path: Path) -> dict:
    record = read_json(path / VECTOR_INDEX)
    sources = [{name: source[name] for name in ("file", "rows", "done")} for source in record["sources"]]
    is_finished = all(source["done"] == source["rows"] for source in sources)
    return {
        "kind": "index" if is_finished else "unfinished index",
        "sources": sources,
        **{name: record[name] for name in ("model", "width", "dtype", "count", "similarity", "columns")},
    }


def _index_lines(info: dict) -> list[tuple[str, str]]:
    sources = [
        f"{source['file'] or 'texts in memory'} ({source['done']:,} of {source['rows']:,})"
        for source in info["sources"]
    ]
    return [
        ("model", info["model"]),
        ("texts", f"{info['count']:,}"),
        ("vectors", f"{info['dtype']}, {info['width']} wide, {info['similarity']}"),
        ("columns", ", ".join(info["columns"])),
        ("sources", "; ".join(sources)),
    ]


def _run(run: ReportedRun) -> dict:
    return {
        "kind": "run",
        "preset": run.preset,
        "is_of_text": run.is_of_text,
        "from": run.record.get("from"),
        "teacher": run.teacher,
        "parameters": run.record.get("parameters"),
        "kept_parameters": run.record.get("kept_parameters"),
        "finished": run.is_finished,
        "step": run.step,
        "num_steps": run.num_steps,
        "state": run.status,
        "tokens": run.tokens,
        "seconds": run.seconds,
        "tokens_per_second": run.tokens_per_second,
        "device": run.device,
        "corpora": run.corpora,
        "last_train": run.train[-1] if run.train else None,
        "last_validation": run.last_validation,
        "best_validation": run.best_validation,
        "unigram_baseline": run.baseline,
        "resume": None if run.is_finished else run.resume_command,
    }


def _run_lines(info: dict) -> list[tuple[str, str]]:
    speed = info["tokens_per_second"]
    out = [
        (
            "tasks" if info["is_of_text"] else "preset",
            info["preset"] + (f", initialised from {info['from']}" if info["from"] else ""),
        ),
        ("teacher", info["teacher"] or ""),
        ("parameters", formatting.parameters(info["parameters"], info["kept_parameters"])),
        ("state", info["state"]),
        ("tokens seen", formatting.amount(info["tokens"])),
        ("time", formatting.duration(info["seconds"]) + (f", {speed:,.0f} tokens per second" if speed else "")),
        ("device", info["device"]),
    ]
    for corpus in info["corpora"]:
        counts = f"{formatting.amount(corpus.get('tokens', 0))} tokens, weight {corpus.get('weight', 1):g}"
        out.append(("data", f"{corpus.get('folder')}: {counts}, read {formatting.times(corpus['epochs'])}"))
    out.append(("last training loss", _losses(info["last_train"])))
    out.append(("last validation", _losses(info["last_validation"])))
    out.append(("best validation", _losses(info["best_validation"])))
    for term in TOKENS:
        if term in info["unigram_baseline"]:
            loss = formatting.loss(info["unigram_baseline"][term])
            out.append(("unigram baseline", f"{term} {loss}"))
    return [*out, ("to resume", info["resume"] or "")]


def _losses(line: dict | None) -> str:
    """For example `3.456 at step 2,000 (mlm 3.1, ...)`."""
    if line is None:
        return "none yet"
    terms = ("mlm", "clm", "nsp", "sop", "rtd", "correction", "replace_mlm", "all_tokens_mlm")
    names = (*terms, *(f"{term}_accuracy" for term in terms))
    parts = [
        f"{name.replace('_', ' ')} {(formatting.percent if name.endswith('accuracy') else formatting.loss)(line[name])}"
        for name in names
        if name in line
    ]
    return f"{formatting.loss(line.get('loss'))} at step {line['step']:,}" + (f" ({', '.join(parts)})" if parts else "")


def _corpus(folder: Path) -> dict:
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest.get("totals"), dict) or "shards" not in manifest:
        raise ValueError(f"{folder} is not a corpus: its manifest.json has no totals and was not written by hornbook")
    names = ("fingerprint", "vocab_size", "dtype", "totals", "dropped", "problems", "settings", "seconds")
    return {
        "kind": "corpus",
        **{name: manifest.get(name) for name in names},
        "num_shards": len(manifest["shards"]),
        "num_sources": manifest["sources"]["files"],
        "repeated_share": manifest.get("repeated_lines", {}).get("repeated_share"),
        "bytes_on_disk": sum(file.stat().st_size for file in folder.glob("shard-*.npy")),
    }


def _corpus_lines(info: dict) -> list[tuple[str, str]]:
    totals, repeated = info["totals"], info["repeated_share"]
    out = [
        (name, formatting.amount(totals[name]))
        for name in ("documents", "sentences", "words", "tokens")
        if name in totals
    ]
    out += [
        ("vocabulary", f"{info['vocab_size']:,} tokens" if info["vocab_size"] else ""),
        (
            "size",
            f"{formatting.size(info['bytes_on_disk'])} in {formatting.counted(info['num_shards'], 'shard')}",
        ),
        (
            "read",
            f"{formatting.size(totals.get('bytes_read', 0))} from {formatting.counted(info['num_sources'], 'file')}",
        ),
        ("repeated lines", formatting.percent(repeated) if repeated is not None else ""),
    ]
    return out + formatting.problem_rows(info["problems"])


def _unfinished_corpus(folder: Path) -> dict:
    progress = read_json(folder / "progress.json")
    return {
        "kind": "unfinished corpus",
        "num_shards": len(progress.get("shards", [])),
        "totals": progress.get("totals", {}),
        "bytes_read": progress.get("bytes_read", 0),
        "bytes_total": progress.get("request", {}).get("sources", {}).get("bytes", 0),
    }


def _unfinished_lines(info: dict) -> list[tuple[str, str]]:
    tokens = formatting.amount(info["totals"].get("tokens", 0))
    return [
        ("so far", f"{tokens} tokens in {formatting.counted(info['num_shards'], 'shard')}"),
        ("read", f"{formatting.size(info['bytes_read'])} of {formatting.size(info['bytes_total'])}"),
        ("to resume", "run the same 'hornbook corpus build' command again"),
    ]


def _model(folder: Path) -> dict:
    config = read_json(folder / "config.json")
    shapes = _shapes(folder)
    return {
        "kind": "model",
        "model_type": config.get("model_type"),
        "architectures": config.get("architectures") or [],
        "parameters": sum(math.prod(shape) for shape in shapes.values()),
        "num_tensors": len(shapes),
        "num_layers": _first(config, LAYERS),
        "width": _first(config, WIDTH),
        "num_heads": _first(config, HEADS),
        "vocab_size": config.get("vocab_size"),
        "max_positions": _longest(config),
        "has_tokenizer": (folder / "tokenizer.json").is_file() or (folder / "vocab.txt").is_file(),
        **_head(folder, config),
    }


def _head(folder: Path, config: dict) -> dict:
    """The task of a fine-tuned model: from task.json if a run wrote the folder, otherwise from its class."""
    hf_class = str((config.get("architectures") or [""])[0])
    head, task = config.get("hornbook_head") or {}, read_json_if_exists(folder / "task.json")
    problem_type = head.get("problem_type") or config.get("problem_type")
    fitting = [kind for kind in KINDS.values() if head.get("output") == kind.output or _is_class_of(kind, hf_class)]
    fitting.sort(key=lambda kind: kind.problem_type != problem_type)
    kind = KINDS.get(str(task.get("kind"))) or next(iter(fitting), None)
    labels = config.get("id2label") or {}
    has_labels = kind is not None and kind.has_labels
    return {
        "task": task.get("task") or (kind and kind.name),
        "task_kind": kind and kind.name,
        "labels": [str(labels[key]) for key in sorted(labels, key=int)] if has_labels else [],
    }


def _is_class_of(kind: type, name: str) -> bool:
    """Whether models of a class of `transformers` have this kind's head; a bare `...Model` has none."""
    return "For" in kind.hf_class and name.endswith(kind.hf_class)


def _longest(config: dict) -> object:
    rows = _first(config, ("max_position_embeddings", "n_positions"))
    if config.get("model_type") == "roberta" and isinstance(rows, int):
        return rows - config.get("pad_token_id", 1) - 1  # RoBERTa's positions start after pad_token_id
    return rows


def _first(config: dict, names: tuple[str, ...]) -> object:
    return next((config[name] for name in names if name in config), None)


def _shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of every tensor, from the safetensors headers; the values are not read."""
    if (folder / WEIGHTS).is_file():
        names = [WEIGHTS]
    elif (folder / INDEX).is_file():
        with refusing_damage(folder / INDEX, "copy it again from its source"):
            names = sorted(set(read_json(folder / INDEX)["weight_map"].values()))
    else:
        raise ValueError(
            f"{folder} has a config.json but no {WEIGHTS}: copy the weights into it, or give another folder"
        )
    shapes = {}
    for name in names:
        try:
            with safe_open(folder / name, framework="numpy") as opened:
                shapes |= {key: opened.get_slice(key).get_shape() for key in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{folder / name} is damaged or missing ({error}): copy it again from its source"
            ) from None
    return shapes


def _model_lines(info: dict) -> list[tuple[str, str]]:
    def text(name: str) -> str:
        value = info[name]
        return f"{value:,}" if isinstance(value, int) else str(value or "")

    return [
        ("family", text("model_type")),
        ("task", _format_task(info)),
        ("labels", format_labels(info["labels"])),
        ("class", ", ".join(map(str, info["architectures"]))),
        (
            "parameters",
            f"{formatting.amount(info['parameters'])} in {formatting.counted(info['num_tensors'], 'tensor')}",
        ),
        ("layers", text("num_layers")),
        ("width", text("width")),
        ("heads", text("num_heads")),
        ("vocabulary", text("vocab_size")),
        ("max sequence length", text("max_positions")),
        ("tokenizer", "included" if info["has_tokenizer"] else "not included"),
    ]


def _format_task(info: dict) -> str:
    if not info["task"]:
        return ""
    return f"{info['task']}: {KINDS[info['task_kind']].description}" if info["task_kind"] else info["task"]


def _tokenizer(folder: Path) -> dict:
    state = read_json(folder / "tokenizer.json")
    model, added = state.get("model"), state.get("added_tokens") or []
    if not isinstance(model, dict) or "vocab" not in model:
        raise ValueError(f"{folder / 'tokenizer.json'} has no vocabulary: restore it, or train the tokenizer again")
    vocabulary = model["vocab"]
    # A unigram vocabulary is a list of (token, score), the others are token -> id.
    tokens = set(vocabulary) if isinstance(vocabulary, dict) else {token for token, _ in vocabulary}
    return {
        "kind": "tokenizer",
        "model_kind": model.get("type") or "unknown",
        "vocab_size": len(tokens | {token["content"] for token in added}),
        "special_tokens": [token["content"] for token in added if token.get("special")],
    }


def _tokenizer_lines(info: dict) -> list[tuple[str, str]]:
    return [
        ("method", info["model_kind"]),
        ("vocabulary", f"{info['vocab_size']:,} tokens"),
        ("special tokens", " ".join(info["special_tokens"])),
    ]
