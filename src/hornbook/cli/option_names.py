"""Messages of the library in the words of the command line."""

import os
import re
import shlex

from hornbook.interop.hub import BUILTIN_MODELS

# The library names Python arguments (text=, resume=True, recipe='tinybert') in errors, log lines and descriptions of
# settings, and the command line its options.
SAME_NAME = """
    api_key append batch_tokens choices clean columns data delimiter dtype encoding exclude flops graph held_out host
    join label links lr lr_search method minutes minutes_each model num_beams pair reason recipe resume sbatch shots
    slide steps strict task text text_column texts vectors where word_vectors
"""
OPTION_OF = {name: f"--{name.replace('_', '-')}" for name in SAME_NAME.split()} | {
    "augment.model": "--augment-model",
    "corpora": "--corpus",
    "init_from": "--from",
    "key": "--id",
    "task.head": "--head",
    "task.pair_encoding": "--pair-encoding",
    "tflops": "--device-tflops",
}
PHRASES = {"remove the folder": "add --overwrite", "model.fill(text)": "--fill"}  # what has no argument
# A name as a word of its own, then True, a quoted value, or no value. So paths and settings (model.width=64) are kept.
NAMES = "|".join(map(re.escape, OPTION_OF))
ARGUMENT = re.compile(rf"(?<![\w./'\"=-])({NAMES})=(?:True\b|(['\"])(.*?)\2|(?=[\s,;:)]|$))")


def as_options(text: str) -> str:
    """A message of the library in the words of the command line.

    >>> as_options("use recipe='tinybert' or a smaller batch_tokens=, or remove the folder")
    'use --recipe tinybert or a smaller --batch-tokens, or add --overwrite'
    """

    def option(match: re.Match) -> str:
        return OPTION_OF[match[1]] + ("" if match[3] is None else f" {shlex.quote(match[3])}")

    text = ARGUMENT.sub(option, text).replace(f"{BUILTIN_MODELS}{os.sep}", "")  # built-in models by their names
    for phrase, of_command in PHRASES.items():
        text = text.replace(phrase, of_command)
    return text
