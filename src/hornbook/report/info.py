"""`hornbook info PATH`: describes a folder from its small files and file headers only."""

import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from hornbook.files import INT8_SCALE, read_json, read_json_if_exists, refusing_damage
from hornbook.interop.files import WEIGHTS, weights_files
from hornbook.interop.hub import builtin_folder, is_preset
from hornbook.report import formatting
from hornbook.report.experiment import describe_experiment
from hornbook.report.finetuned import ReportedTaskRun, describe_baseline, describe_finetuned, format_labels, load_run
from hornbook.report.measured import COMPARISON_FILE, EXPORT_FILE, describe_comparison, describe_exported
from hornbook.report.prompting import describe_prompted
from hornbook.report.run_files import ReportedRun
from hornbook.report.trials import describe_several, is_several
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.task import Task

VECTOR_INDEX = "index.json"  # of an index of embedded texts
TEXT_SUFFIXES = {".txt", ".jsonl", ".parquet"}
TABLE_SUFFIXES = {".csv", ".tsv", ".xlsx"}
# Keys of config.json by model family.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTH = ("hidden_size", "n_embd", "dim", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
REPAIR = "restore it, or create the folder again"


def describe(path: str | Path) -> dict:
    """Describes a folder: its `kind` (run, fine-tuned run, several runs, baseline, probe, prompted task, comparison,
    experiment, corpus, unfinished corpus, index, unfinished index, graph, graph vectors, model, exported model or
    tokenizer), the numbers of that kind, and `lines`: all of it as (label, text), in print order. Runs also have a
    `title`, whether they are `finished`, and their `result`.

    >>> import hornbook
    >>> hornbook.describe("corpus")["kind"]
    'corpus'
    """
    folder = Path(path) if Path(path).exists() else builtin_folder(str(path)) or Path(path)
    if not folder.exists():
        if is_preset(str(path)):
            raise ValueError(f"{path} is a preset, not a model: 'hornbook plan {path}' describes it")
        raise ValueError(f"{path} does not exist: give a run, corpus, model or tokenizer folder")
    if folder.is_file():
        raise ValueError(_what_a_file_is_for(folder))
    with refusing_damage(folder, "restore its JSON files, or create the folder again"):
        description = _describe(folder)
    lines = [("what", f"{description['kind']} in {path}"), *(line for line in description.pop("lines") if line[1])]
    return {"folder": str(path), **description, "lines": lines}


def _describe(folder: Path) -> dict:
    record = folder / "run.json"
    command = str(read_json(record).get("command", "")) if record.is_file() else None
    if command in BY_COMMAND:
        with refusing_damage(record, REPAIR):
            return BY_COMMAND[command](folder)
    if command == "label-curve" or is_several(folder):
        return describe_several(folder)
    if command is not None:
        run = load_run(folder)
        return describe_finetuned(run) if isinstance(run, ReportedTaskRun) else _run(run)
    for name, describe_folder in BY_FILE.items():
        if (folder / name).is_file():
            return describe_folder(folder)
    raise ValueError(
        f"{folder} has none of run.json (a run), manifest.json (a corpus), config.json with {WEIGHTS} (a model) and "
        "tokenizer.json (a tokenizer): give a folder that hornbook or transformers wrote"
    )


def _what_a_file_is_for(path: Path) -> str:
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & TEXT_SUFFIXES:
        return (
            f"{path} is a text file: train a tokenizer on it with 'hornbook tokenizer train', build a corpus with "
            "'hornbook corpus build', and pass the corpus folder"
        )
    if suffixes & TABLE_SUFFIXES:
        return f"{path} is a table, not a folder: 'hornbook check {path}' describes it"
    return f"{path} is a file: pass its folder, {path.parent}"


# ---- runs without labelled data


def _run(run: ReportedRun) -> dict:
    resume = None if run.is_finished else run.resume_command
    loss = (run.best_validation or run.last_validation or {}).get("loss")
    terms = f" ({' + '.join(run.terms)})" if run.terms else ""
    return {
        "kind": "run",
        "title": run.title,
        "preset": run.preset,
        "recipe": run.recipe or None,
        "seed": run.seed,
        "from": run.record.get("from"),
        "teacher": run.teacher,
        "parameters": run.record.get("parameters"),
        "kept_parameters": run.record.get("kept_parameters"),
        "planned_flops": run.record.get("planned_flops"),
        "finished": run.is_finished,
        "result": f"loss {formatting.loss(loss)}{terms}" if loss else "",
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
        "resume": resume,
        "lines": [*run.facts, ("state", run.status), ("to resume", resume or "")],
    }


def _vectors(folder: Path) -> dict:
    """Describes trained vectors of the entities of a graph."""
    record, scores = read_json(folder / "run.json"), read_json_if_exists(folder / "scores.json")
    graph, settings, result = record["request"]["graph"], record["settings"], ""
    lines = [("graph", graph), ("model", f"{settings['model']}, width {settings['width']}")]
    if scores:
        names = [name for name in ("mrr", "hits@1", "hits@3", "hits@10") if scores["test"]]
        lines.append(("trained", f"{scores['epochs']:g} epochs, {formatting.duration(scores['seconds'])}"))
        lines += [(name, f"{scores['test'][name]:.4g}") for name in names]
        lines.append(("entities without a vector", f"{scores['entities_without_vector']:,}"))
        result = f"mrr {scores['test']['mrr']:.4g}" if names else ""
    else:
        lines.append(("state", "not finished: resume with 'hornbook graph embed ... --resume'"))
    return {
        "kind": "graph vectors",
        "title": f"vectors of {graph}",
        "finished": bool(scores),
        "result": result,
        "request": record["request"],
        "settings": settings,
        "scores": scores,
        "lines": lines,
    }


# ---- corpora, graphs, indexes


def _manifest(folder: Path) -> dict:
    manifest = read_json(folder / "manifest.json")
    if manifest.get("kind") == "graph":
        return _graph(folder, manifest)
    if not isinstance(manifest.get("totals"), dict) or "shards" not in manifest:
        raise ValueError(f"{folder} is not a corpus: its manifest.json has no totals and was not written by hornbook")
    totals, num_shards, num_sources = manifest["totals"], len(manifest["shards"]), manifest["sources"]["files"]
    size = sum(file.stat().st_size for file in folder.glob("shard-*.npy"))
    vocab_size = manifest.get("vocab_size")
    repeated = manifest.get("repeated_lines", {}).get("repeated_share")
    counts = [name for name in ("documents", "sentences", "words", "tokens", "mentions") if name in totals]
    read = formatting.size(totals.get("bytes_read", 0))
    names = ("fingerprint", "vocab_size", "dtype", "totals", "dropped", "problems", "settings", "seconds")
    return {
        "kind": "corpus",
        **{name: manifest.get(name) for name in names},
        "num_shards": num_shards,
        "num_sources": num_sources,
        "repeated_share": repeated,
        "bytes_on_disk": size,
        "lines": [
            *((name, formatting.amount(totals[name])) for name in counts),
            ("vocabulary", f"{vocab_size:,} tokens" if vocab_size else ""),
            ("size", f"{formatting.size(size)} in {formatting.counted(num_shards, 'shard')}"),
            ("read", f"{read} from {formatting.counted(num_sources, 'file')}"),
            ("repeated lines", formatting.percent(repeated) if repeated is not None else ""),
            *formatting.problem_rows(manifest.get("problems")),
        ],
    }


def _graph(folder: Path, manifest: dict) -> dict:
    totals, size = manifest["totals"], sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    counts = ("entities", "relations", "edges", "names", "entities_without_name", "isolated_entities")
    return {
        "kind": "graph",
        **{name: manifest.get(name) for name in ("fingerprint", "totals", "problems", "settings", "seconds")},
        "bytes_on_disk": size,
        "lines": [
            *((name.replace("_", " "), f"{totals[name]:,}") for name in counts),
            *((f"{name} edges", f"{count:,}") for name, count in (totals.get("splits") or {}).items()),
            ("size", formatting.size(size)),
            *formatting.problem_rows(manifest.get("problems")),
        ],
    }


def _unfinished_corpus(folder: Path) -> dict:
    progress = read_json(folder / "progress.json")
    num_shards, totals = len(progress.get("shards", [])), progress.get("totals", {})
    done, total = progress.get("bytes_read", 0), progress.get("request", {}).get("sources", {}).get("bytes", 0)
    shards = formatting.counted(num_shards, "shard")
    return {
        "kind": "unfinished corpus",
        "num_shards": num_shards,
        "totals": totals,
        "bytes_read": done,
        "bytes_total": total,
        "lines": [
            ("so far", f"{formatting.amount(totals.get('tokens', 0))} tokens in {shards}"),
            ("read", f"{formatting.size(done)} of {formatting.size(total)}"),
            ("to resume", "run the same 'hornbook corpus build' command again"),
        ],
    }


def _index(folder: Path) -> dict:
    with refusing_damage(folder / VECTOR_INDEX, REPAIR):
        record = read_json(folder / VECTOR_INDEX)
        sources = [{name: source[name] for name in ("file", "rows", "done")} for source in record["sources"]]
        is_finished = all(source["done"] == source["rows"] for source in sources)
        info = {name: record[name] for name in ("model", "width", "dtype", "count", "similarity", "columns")}
        files = [f"{each['file'] or 'texts in memory'} ({each['done']:,} of {each['rows']:,})" for each in sources]
        lines = [
            ("model", info["model"]),
            ("texts", f"{info['count']:,}"),
            ("vectors", f"{info['dtype']}, {info['width']} wide, {info['similarity']}"),
            ("columns", ", ".join(info["columns"])),
            ("sources", "; ".join(files)),
        ]
        return {"kind": "index" if is_finished else "unfinished index", "sources": sources, **info, "lines": lines}


# ---- models and tokenizers


def _model(folder: Path) -> dict:
    config, shapes = read_json(folder / "config.json"), _shapes(folder)
    has_tokenizer = (folder / "tokenizer.json").is_file() or (folder / "vocab.txt").is_file()
    parameters, architectures = sum(map(math.prod, shapes.values())), config.get("architectures") or []
    kind, task, labels = _head(folder, config)
    sizes = {
        "num_layers": _first(config, LAYERS),
        "width": _first(config, WIDTH),
        "num_heads": _first(config, HEADS),
        "vocab_size": config.get("vocab_size"),
        "max_positions": _longest(config),
    }
    titles = ("layers", "width", "heads", "vocabulary", "max sequence length")
    texts = [f"{size:,}" if isinstance(size, int) else str(size or "") for size in sizes.values()]
    return {
        "kind": "model",
        "model_type": config.get("model_type"),
        "architectures": architectures,
        "parameters": parameters,
        "num_tensors": len(shapes),
        **sizes,
        "has_tokenizer": has_tokenizer,
        "task": task,
        "task_kind": kind and kind.kind,
        "labels": labels,
        "lines": [
            ("family", str(config.get("model_type") or "")),
            ("task", f"{task}: {kind.description}" if task and kind else task or ""),
            ("labels", format_labels(labels)),
            ("class", ", ".join(map(str, architectures))),
            ("parameters", f"{formatting.amount(parameters)} in {formatting.counted(len(shapes), 'tensor')}"),
            *zip(titles, texts, strict=True),
            ("tokenizer", "included" if has_tokenizer else "not included"),
        ],
    }


def _head(folder: Path, config: dict) -> tuple[type[Task] | None, str | None, list[str]]:
    """The kind of task, the task and the labels of a fine-tuned model: from task.json if a run wrote the folder,
    otherwise from its class."""
    hf_class = str((config.get("architectures") or [""])[0])
    head, task = config.get("hornbook_head") or {}, read_json_if_exists(folder / "task.json")
    problem_type = head.get("problem_type") or config.get("problem_type")
    fitting = [
        kind
        for kind in KINDS.values()
        # A bare `...Model` of `transformers` has no head.
        if head.get("output") == kind.output or ("For" in kind.hf_class and hf_class.endswith(kind.hf_class))
    ]
    fitting.sort(key=lambda kind: kind.problem_type != problem_type)
    kind = KINDS.get(str(task.get("kind"))) or next(iter(fitting), None)
    labels = config.get("id2label") or {} if kind is not None and kind.has_labels else {}
    return kind, task.get("task") or (kind and kind.kind), [str(labels[key]) for key in sorted(labels, key=int)]


def _longest(config: dict) -> object:
    rows = _first(config, ("max_position_embeddings", "n_positions"))
    if config.get("model_type") == "roberta" and isinstance(rows, int):
        return rows - config.get("pad_token_id", 1) - 1  # RoBERTa's positions start after pad_token_id
    return rows


def _first(config: dict, names: tuple[str, ...]) -> object:
    return next((config[name] for name in names if name in config), None)


def _shapes(folder: Path) -> dict[str, list[int]]:
    """The shapes of the weights, from the safetensors headers; the values are not read."""
    shapes = {}
    for file in weights_files(folder):
        try:
            with safe_open(file, framework="numpy") as opened:
                shapes |= {key: opened.get_slice(key).get_shape() for key in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is damaged or missing ({error}): copy it again from its source") from None
    scales = {f"{name}{INT8_SCALE}" for name in shapes}  # of int8 matrices
    return {name: shape for name, shape in shapes.items() if name not in scales}


def _tokenizer(folder: Path) -> dict:
    state = read_json(folder / "tokenizer.json")
    model, added = state.get("model"), state.get("added_tokens") or []
    if not isinstance(model, dict) or "vocab" not in model:
        raise ValueError(f"{folder / 'tokenizer.json'} has no vocabulary: restore it, or train the tokenizer again")
    vocabulary = model["vocab"]
    # A unigram vocabulary is a list of (token, score), the others are token -> id.
    tokens = set(vocabulary) if isinstance(vocabulary, dict) else {token for token, _ in vocabulary}
    method, vocab_size = model.get("type") or "unknown", len(tokens | {token["content"] for token in added})
    special = [token["content"] for token in added if token.get("special")]
    lines = [("method", method), ("vocabulary", f"{vocab_size:,} tokens"), ("special tokens", " ".join(special))]
    return {
        "kind": "tokenizer",
        "model_kind": method,
        "vocab_size": vocab_size,
        "special_tokens": special,
        "lines": lines,
    }


BY_COMMAND = {  # by the command that wrote the record
    "baseline": describe_baseline,
    "probe": describe_baseline,
    "prompt": describe_prompted,
    "reproduce": describe_experiment,
    "graph embed": _vectors,
}
BY_FILE = {  # by the first of these files that a folder without a record has
    COMPARISON_FILE: describe_comparison,
    "manifest.json": _manifest,
    "progress.json": _unfinished_corpus,
    VECTOR_INDEX: _index,
    EXPORT_FILE: describe_exported,
    "config.json": _model,
    "tokenizer.json": _tokenizer,
}
