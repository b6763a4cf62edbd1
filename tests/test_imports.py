"""The import rules in the table of `docs/architecture.md`. Imports inside functions count too."""

import ast
import re
import subprocess
import sys
from functools import cache, lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hornbook"

EVERYONES = {"batch", "config", "devices", "extras", "files", "lifecycle"}
PROTOCOL = {"train.objective", "train.randomness"}  # what an objective is, and how its draws are seeded
ALLOWED: dict[str, set[str]] = {
    "batch": set(),
    "config": set(),
    "devices": set(),
    "extras": set(),
    "files": set(),
    "lifecycle": set(),
    "text": set(),
    "data": {"text"},
    "nn": set(),
    "models": {"nn"},
    "train": {"data"},
    "objectives": {"data", "models", "nn.kernels", *PROTOCOL},
    "metrics": set(),
    "interop": {"models", "nn.int8", "text"},
    "tasks": {"text", "data", "models", "metrics", "interop", *PROTOCOL},
    "inference": {"nn", "models", "text", "data", "metrics", "tasks", "interop", "graph", "reasoning"},
    "report": {"metrics", "tasks.task", "tasks.kinds", "interop.files", "interop.hub"},
    "graph": {"text", "data", "train"},
    "reasoning": {"models", "tasks", "graph"},
    "terminal": set(),
}
ALLOWED["runs"] = set(ALLOWED) - {"terminal"}
ALLOWED["evaluation"] = set(ALLOWED) - {"terminal"}
ALLOWED["show"] = set(ALLOWED) - {"terminal"}
ALLOWED["deployment"] = set(ALLOWED) - {"terminal", "evaluation"}
ALLOWED["serve"] = set(ALLOWED) - {"terminal", "evaluation"}
ALLOWED["cli"] = set(ALLOWED)
ALLOWED["demo"] = {*ALLOWED, "cli"}
ALLOWED["__main__"] = {"cli"}
IMPORT_TORCH = (
    *("batch", "devices", "nn.", "models.", "objectives.", "train.", "interop.", "inference.", "data.loader"),
    *("tasks.objective", "tasks.evaluation", "runs.", "evaluation.", "deployment."),
    *("graph.embedding.", "reasoning.grounding", "show.masking", "show.parameters"),
)

MODULES = {
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(SOURCE.rglob("*.py"))
    if file != SOURCE / "__init__.py"
}


@cache
def imported(file: Path) -> set[str]:
    """Every module that a file names in an import, with `TYPE_CHECKING` ones left out: they are never run."""
    found = set()
    nodes = [ast.parse(file.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        # Expressions hold no imports.
        nodes += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr)]
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            # `from hornbook.models import bert` names a module, `from hornbook.files import read_json` does not
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if name.removeprefix("hornbook.") in MODULES}
            found |= modules or {node.module}
    return found


def test_every_module_has_its_row():
    assert {name.partition(".")[0] for name in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("name", MODULES)
def test_imports_are_allowed(name):
    package = name.partition(".")[0]
    for each in imported(MODULES[name]):
        top, _, inside = each.partition(".")
        if top != "hornbook" or not inside:
            continue
        allowed = ALLOWED[package] | EVERYONES | {package}
        parts = inside.split(".")
        names = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        assert names & allowed, f"{name} imports {each}"


@pytest.mark.parametrize("name", MODULES)
def test_torch_is_imported_where_it_may_be(name):
    tops = {each.partition(".")[0] for each in imported(MODULES[name])}
    if not f"{name}.".startswith(IMPORT_TORCH) and name not in IMPORT_TORCH:
        assert "torch" not in tops
    assert "transformers" not in tops


def test_the_document_names_the_same_packages():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = text.partition("## Packages")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]+) \|", rows, re.MULTILINE)
    named = {name.rstrip("/").removesuffix(".py") for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    # Those who only show things may go without a row.
    assert set(ALLOWED) - {"terminal", "demo", "__main__"} <= named <= set(ALLOWED)


def modules_after(code: str) -> set[str]:
    code = f"import sys\n{code}\nprint('|'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.strip().splitlines()[-1].split("|"))


HEAVY = {"torch", "tokenizers", "pyarrow", "matplotlib", "numpy", "safetensors", "huggingface_hub"}


def test_help_imports_nothing_heavy():
    code = "sys.argv = ['hornbook', '--help']\nfrom hornbook.cli import main\ntry: main()\nexcept SystemExit: pass"
    assert not modules_after(code) & HEAVY


def test_corpus_building_and_reports_do_without_torch():
    code = "import hornbook.data.build, hornbook.data.tokenizing, hornbook.text.training, hornbook.report.page"
    assert not modules_after(f"{code}, hornbook.report.info, hornbook.terminal") & {"torch", "transformers"}


def test_checking_data_does_without_torch():
    code = "import hornbook\nhornbook.check([{'text': f'text {n}', 'label': 'ab'[n % 2]} for n in range(20)])"
    assert "torch" not in modules_after(code)


def test_descriptions_do_without_matplotlib():
    assert "matplotlib" not in modules_after(
        "import hornbook.report.info, hornbook.report.run_list, hornbook.report.card"
    )


def test_loading_a_model_imports_no_compiler(tiny_run):
    """Those two take longer than the rest of a short command."""
    assert not modules_after(f"import hornbook\nhornbook.load({str(tiny_run)!r})") & {"sympy", "torch._dynamo"}


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda file: file.stem)
def test_what_a_benchmark_imports_exists(file):
    """Benchmarks run rarely; without this a renamed function would break them unnoticed."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hornbook."):
            module = node.module.removeprefix("hornbook.")
            assert module in MODULES, f"{file.name} imports {node.module}, which does not exist"
            missing = {each.name for each in node.names if f"{module}.{each.name}" not in MODULES} - _names(
                MODULES[module]
            )
            assert not missing, f"{file.name} imports {sorted(missing)} from {node.module}, which does not define it"


@lru_cache
def _names(file: Path) -> set[str]:
    """Everything that a module defines, assigns or imports, also below an `if`."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
    return names
