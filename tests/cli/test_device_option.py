"""Every command that computes takes --device."""

import pytest
import typer

from hornbook.cli.app import app

COMMANDS = dict(typer.main.get_command(app).commands)
WITHOUT = {
    "tokenizer",
    "corpus",
    "plan",
    "info",
    "report",
    "glue",
    "export",
    "runs",
    "push",
}  # compute nothing, or on the CPU
for group in ("graph", "show"):
    COMMANDS |= {f"{group} {name}": each for name, each in COMMANDS.pop(group).commands.items()}
WITHOUT |= {"graph build", "graph paths", "graph link"}
WITHOUT |= {"show tokens", "show forms", "show masking", "show example", "show parameters"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT))
def test_commands_that_compute_take_a_device(name):
    assert "device" in {option.name for option in COMMANDS[name].params}


def test_the_device_is_used(hornbook, tiny_run, tiny_corpus, tmp_path):
    said = hornbook(
        *["pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", tmp_path / "run", "--steps", 1],
        *["--device", "abacus"],
    )
    assert said.status == 2 and "there is no device 'abacus'" in said.error
    (tmp_path / "texts.txt").write_text("a text\n")
    out = ["--out", tmp_path / "vectors.npy"]
    said = hornbook("features", tiny_run, tmp_path / "texts.txt", *out, "--device", "abacus")
    assert said.status == 2 and "there is no device 'abacus'" in said.error
    said = hornbook("pretrain", "bert-tiny", "--show", "--json", "--device", "cpu")
    assert said.answer["runtime.device"] == "cpu"
