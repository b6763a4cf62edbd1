"""`hornbook.push`: uploads a model folder with its model card to the Hugging Face Hub."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from hornbook.files import read_json
from hornbook.inference.task_model import read_finished_record
from hornbook.interop.hub import PATTERNS
from hornbook.lifecycle.run_folder import ignore
from hornbook.report.card import with_yaml_header
from hornbook.tasks.spec import TASK_FILE

CARD = "README.md"
UPLOADED = (*PATTERNS, "*.onnx", CARD, "LICENSE")  # not run.json and logs, which name files of this machine
WEIGHTS = ("*.safetensors", "*.onnx")


@dataclass(frozen=True)
class Pushed:
    """`files`: paths in the repository, with their sizes in bytes. `url` is None in a dry run."""

    name: str
    files: dict[str, int]
    url: str | None = None


def push(
    run: str | Path,
    name: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    log: Callable[[str], None] = ignore,
) -> Pushed:
    """Uploads the model of a run to the Hugging Face Hub, in one commit. `hornbook.load(name)` and `transformers` open
    it from there.

    Args:
        run: A finished run, a model folder or an exported folder.
        name: `owner/name` of the repository, or `name` for one of your own; it is created if there is none.
        private: Create it as a private repository.
        dry_run: Upload nothing; only list the files.
        log: Receives messages about what is uploaded.

    >>> import hornbook
    >>> sorted(hornbook.push("runs/reviews", "me/reviews", dry_run=True).files)[:3]
    ['README.md', 'config.json', 'model.safetensors']
    """
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    folder = Path(run)
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise ValueError(
            f"'{name}' is not a name for the hub: use owner/name of letters, digits, '-', '_', '.'"
        ) from None
    contents = _contents(folder)
    sizes = {path: len(data) if isinstance(data, bytes) else data.stat().st_size for path, data in contents.items()}
    if dry_run:
        return Pushed(name, sizes)
    log(f"uploading {len(sizes)} files, {sum(sizes.values()) / 1e6:,.1f} MB")
    return Pushed(name, sizes, _upload(contents, name, private))


def _contents(folder: Path) -> dict[str, Path | bytes]:
    """The files to upload, by path in the repository, with a model card if the folder has none."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: give the folder of a finished run")
    read_finished_record(folder)
    contents: dict[str, Path | bytes] = {}
    for file in sorted([*folder.glob("*"), *folder.glob("*_Pooling/config.json")]):
        path = file.relative_to(folder).as_posix()
        if file.is_file() and any(fnmatch(path, pattern) for pattern in UPLOADED):
            contents[path] = _without_paths(file) if path == TASK_FILE else file
    if "config.json" not in contents or not any(fnmatch(path, pattern) for path in contents for pattern in WEIGHTS):
        raise ValueError(f"{folder} has no model: give a finished run, with config.json and model.safetensors")
    return contents if CARD in contents else {CARD: _card(folder), **contents}


def _without_paths(task_file: Path) -> bytes:
    """`task.json` with knowledge graphs and their vectors named, without where they lie on this machine."""
    record = read_json(task_file)
    for field, names in (("reason", ("graph", "vectors")), ("graph", ("folder",))):
        entry = record.get(field) or {}
        entry.update({name: Path(entry[name]).name for name in names if entry.get(name)})
    return json.dumps(record, indent=2, ensure_ascii=False).encode()


def _card(folder: Path) -> bytes:
    family = str(read_json(folder / "config.json").get("model_type") or "language model")
    text = (
        f"# {folder.resolve().name}\n\nA {family} model, trained with Hornbook.\n\n"
        '```py\nimport hornbook\n\nmodel = hornbook.load("NAME")  # the name of this repository\n```\n'
    )
    return with_yaml_header(text, library_name="transformers", tags=["hornbook", family]).encode()


def _upload(contents: dict[str, Path | bytes], name: str, private: bool) -> str:
    import httpx
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if get_token() is None:
        raise ValueError("there is no token for the hub: run hf auth login, or set the variable HF_TOKEN")
    operations = [
        CommitOperationAdd(path, str(data) if isinstance(data, Path) else data) for path, data in contents.items()
    ]
    try:
        api = HfApi(library_name="hornbook")
        url = api.create_repo(name, private=private, exist_ok=True)
        api.create_commit(url.repo_id, operations, commit_message="Upload the model with hornbook push")
        return str(url)
    except OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set: unset it"
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        reason = f"the hub answered: {str(error).splitlines()[0]}"
        if status in (401, 403):
            reason = f"your token may not write to it ({status}): use a token with write access, or another owner"
    except (OSError, httpx.HTTPError) as error:
        reason = f"the hub cannot be reached ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    raise ValueError(f"{name} could not be uploaded: {reason}")
