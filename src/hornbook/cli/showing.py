"""The commands `show tokens`, `show masking`, `show replaced`, `show example`, `show forms`, `show attention`, `show
parameters` and `show answer`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hornbook.cli.app import app, print_json
from hornbook.cli.options import FOLDER_OR_NAME, MODEL, Device, Seed, argument, may_be_model, option, refuse_folder
from hornbook.terminal import log, print_result, result_console, table

if TYPE_CHECKING:
    from hornbook.show.visualization import Visualization
    from hornbook.text.tokenizer import Tokenizer

show_app = typer.Typer(
    help="Show what a model reads and does: tokens, masking, training examples, attention, parameters.",
    no_args_is_help=True,
)
app.add_typer(show_app, name="show")

TEXTS = f"One text or two. Before it, a model: {MODEL[0].lower()}{MODEL[1:]} By default en."
Texts = argument(list[str], TEXTS, metavar="[MODEL] TEXT [SECOND TEXT]", show_default=False)
ModelsAndTexts = argument(
    list[str],
    f"{TEXTS} Several models are shown side by side.",
    metavar="[MODEL]... TEXT [SECOND TEXT]",
    show_default=False,
)
Html = option(Path | None, "Also write the picture to this HTML file.")
Unit = option(str, "What is masked as a whole: token, word or ngram.")
Probability = option(float, "Share of the tokens that are predicted.")
STYLES = {
    "special": "dim",
    "unknown": "bold red",
    "piece": "cyan",
    "masked": "bold yellow",
    "random": "bold magenta",
    "kept": "bold green",
    "replaced": "bold magenta",
    "found": "bold green",
    "wrong": "bold red",
    "answer": "bold green",
}


def split_texts(arguments: list[str]) -> tuple[str | None, str, str | None]:
    """The model, None if there is none, the text and the second text, None if there is none.

    >>> split_texts(["en", "A text."]), split_texts(["A text.", "Another."])
    (('en', 'A text.', None), (None, 'A text.', 'Another.'))
    """
    if len(arguments) > 3:
        raise ValueError(
            f"there are {len(arguments)} arguments, and only a model and two texts are expected: quote texts"
        )
    is_model = len(arguments) == 3 or (len(arguments) == 2 and may_be_model(arguments[0]))
    model, texts = (arguments[0], arguments[1:]) if is_model else (None, arguments)
    for text in texts:
        if not text.strip():
            raise ValueError("the text is empty: give a sentence")
    if arguments == texts[:1]:
        refuse_folder(texts[0], "a text")
    return model, texts[0], texts[1] if len(texts) == 2 else None


def split_models(arguments: list[str]) -> tuple[list[str], str, str | None]:
    """As `split_texts`, with any number of models: after the first, a folder, a built-in model or a name with a slash
    is a further model, unless it is the last argument.

    >>> split_models(["en", "runs/first", "A text."]), split_models(["en", "One.", "Two."])
    ((['en', 'runs/first'], 'A text.', None), (['en'], 'One.', 'Two.'))
    """
    num = int(len(arguments) > 2 and may_be_model(arguments[0]))
    while 0 < num < len(arguments) - 1 and _is_named_model(arguments[num]):
        num += 1
    if num < 2:
        model, text, pair = split_texts(arguments)
        return [] if model is None else [model], text, pair
    if len(arguments) > num + 2:
        raise ValueError(
            f"after {num} models there are {len(arguments) - num} arguments, and only two texts are expected: quote "
            f"texts; '{arguments[num]}' is neither a folder nor a built-in model"
        )
    _, text, pair = split_texts([arguments[0], *arguments[num:]])
    return arguments[:num], text, pair


def _is_named_model(argument: str) -> bool:
    """A folder, a built-in model, or a path or hub name with a slash; a text of one word is none."""
    from hornbook.interop.hub import builtin_folder

    is_path = "/" in argument and len(argument.split()) == 1
    return is_path or os.path.isdir(argument) or builtin_folder(argument) is not None


def open_folder(model: str | None, text: str) -> Path:
    """The folder of a model; without one, that of the built-in model for the language of the text."""
    from hornbook.interop.hub import builtin_for, builtin_names, is_preset, model_folder

    if model is None:
        return model_folder(builtin_for([text]))
    try:
        return model_folder(model)
    except ValueError as error:
        if "/" in model or os.path.exists(model) or is_preset(model):
            raise
        raise ValueError(
            f"{error}, or a built-in model ({', '.join(builtin_names())}); if '{model}' is text, quote all of it: "
            f'"{model} {text}"'
        ) from None


def open_tokenizer(model: str | None, text: str) -> "Tokenizer":
    """The tokenizer of a model, or of a tokenizer folder."""
    from hornbook.text.tokenizer import Tokenizer

    return Tokenizer.load(open_folder(model, text))


def print_visualization(shown: "Visualization", html: Path | None, drawn: "Visualization | None" = None) -> None:
    """Prints a visualization, and writes it, or `drawn` in its place, to an HTML file."""
    from rich.text import Text

    from hornbook.show.visualization import write_visualization

    for note in shown.notes:
        print_result(note)
    for token_row in shown.token_rows:
        line = Text(f"{token_row.label}: ")
        for cell in token_row.cells:
            note = f"({cell.note})" if cell.note else ""
            line.append(cell.text + note, STYLES.get(cell.mark, "")).append(" ")
        result_console.print(line)
    for grid in shown.tables:
        print_result("")
        if grid.title:
            print_result(grid.title)
        table(grid.rows, grid.headings if any(grid.headings) else ())
    if shown.legend:
        legend = Text()
        for mark, meaning in shown.legend.items():
            legend.append(f"{mark}: ", STYLES.get(mark, "")).append(f"{meaning}   ")
        print_result("")
        result_console.print(legend)
    if html is not None:
        log(f"written to {write_visualization(html, drawn or shown)}")
    print_json(shown.to_dict())


@show_app.command("tokens", epilog='Example: hornbook show tokens "The unbelievable hornbook." "A second text."')
def tokens(arguments: Texts, html: Html = None) -> None:
    """Show the tokens of a text or a pair: pieces, ids, positions, segments, unknown words."""
    from hornbook.show.visualization import show_tokens

    model, text, pair = split_texts(arguments)
    print_visualization(show_tokens(open_tokenizer(model, text), text, pair), html)


@show_app.command("forms", epilog='Example: hornbook show forms "The river is wide." "The river is narrow."')
def forms(arguments: Texts, html: Html = None) -> None:
    """Show how two texts are given to a model in each kind of task; a GPT gets GPT-1's forms."""
    from hornbook.interop.files import holds_gpt
    from hornbook.show.visualization import show_forms

    model, text, pair = split_texts(arguments)
    if pair is None:
        raise ValueError("the forms of tasks need a second text: give two sentences")
    is_gpt = holds_gpt(open_folder(model, text))
    print_visualization(show_forms(open_tokenizer(model, text), text, pair, is_gpt), html)


@show_app.command("masking", epilog='Example: hornbook show masking "The cat sat on the mat." --unit word')
def masking(
    arguments: Texts,
    unit: Unit = "token",
    probability: Probability = 0.15,
    num: option(int, "Number of masked copies.", "--copies") = 5,
    seed: Seed = 0,
    html: Html = None,
) -> None:
    """Show a text masked several times as in pre-training: 80% masks, 10% random tokens, 10% unchanged."""
    from hornbook.files import read_json_if_exists
    from hornbook.interop.files import holds_gpt
    from hornbook.objectives.masking import MaskingSettings
    from hornbook.show.masking import show_masking

    model, text, pair = split_texts(arguments)
    folder = open_folder(model, text)
    config = read_json_if_exists(folder / "config.json")
    is_plain_gpt = holds_gpt(folder) and config.get("mask_token_id") is None  # a hybrid GPT masks
    if is_plain_gpt or config.get("attention_direction") == "causal":
        kind = "a GPT" if is_plain_gpt else "a left-to-right model"
        raise ValueError(f"{model} is {kind}, which predicts the next token and masks none: give an encoder such as en")
    settings = MaskingSettings(probability=probability, unit=unit)
    print_visualization(show_masking(open_tokenizer(model, text), text, pair, settings, num, seed), html)


@show_app.command("replaced", epilog='Example: hornbook show replaced "The chef cooked the meal for the guests."')
def replaced(
    arguments: Texts,
    probability: Probability = 0.15,
    num: option(int, "Number of copies.", "--copies") = 3,
    seed: Seed = 0,
    html: Html = None,
    device: Device = "auto",
) -> None:
    """Show ELECTRA's pre-training on a text: masked, filled in by the generator, judged by the discriminator."""
    import hornbook
    from hornbook.inference.encoder import EncoderModel
    from hornbook.show.masking import show_replaced

    model, text, pair = split_texts(arguments)
    if pair is not None:
        raise ValueError("show replaced takes one text: leave out the second")
    loaded = hornbook.load(open_folder(model, text), device=device)
    if not isinstance(loaded, EncoderModel):
        raise ValueError(f"{model} is a GPT, which has no masks: give an ELECTRA")
    print_visualization(show_replaced(loaded, text, num, probability, seed), html)


@show_app.command("example", epilog="Example: hornbook show example corpus --layout sop --index 3")
def example(
    corpus: argument(str, "Corpus folder, made by 'hornbook corpus build'."),
    layout: option(str, "nsp, sop, pairs, full-sentences, or documents (left to right).") = "nsp",
    length: option(int, "Maximum tokens per sequence.") = 64,
    number: option(int, "Index of the example in the corpus, from 0.", "--index") = 0,
    unit: Unit = "token",
    probability: Probability = 0.15,
    seed: Seed = 0,
    html: Html = None,
) -> None:
    """Show a training example of a corpus as the model gets it: segments, masks, label."""
    from hornbook.objectives.masking import MaskingSettings
    from hornbook.show.masking import show_example

    settings = MaskingSettings(probability=probability, unit=unit)
    print_visualization(show_example(corpus, layout, length, number, settings, seed), html)


@show_app.command("attention", epilog='Example: hornbook show attention "The cat sat." --layer 3 --html attention.html')
def attention(
    arguments: ModelsAndTexts,
    layer: option(int | None, "Layer, from 1; the last by default.") = None,
    head: option(int | None, "Head, from 1; by default the mean of all.") = None,
    html: option(Path | None, "Also write a page with every layer and head to this HTML file.") = None,
    device: Device = "auto",
) -> None:
    """Show which tokens each token of a text attends to, in any layer and head. Several models are compared."""
    import hornbook
    from hornbook.show.attention import show_all_attention, show_attention

    models, text, pair = split_models(arguments)
    loaded = [(model, hornbook.load(open_folder(model, text), device=device)) for model in models or [None]]
    drawn = None if html is None else show_all_attention(loaded, text, pair)
    print_visualization(show_attention(loaded, text, pair, layer, head), html, drawn)


@show_app.command("parameters", epilog="Example: hornbook show parameters albert-base")
def parameters(model: argument(str, "A preset, or a model."), html: Html = None) -> None:
    """Show where the parameters of a preset or a model are, by part, and what sharing layers would save."""
    from hornbook.show.parameters import show_parameters

    print_visualization(show_parameters(model), html)


@show_app.command("answer", epilog='Example: hornbook show answer runs/squad "Who?" "Ada wrote it."')
def answer(
    model: argument(str, f"A model fine-tuned to answer questions: {FOLDER_OR_NAME}"),
    question: argument(str, "Question."),
    passage: argument(str, "Passage that may have the answer."),
    html: Html = None,
    device: Device = "auto",
) -> None:
    """Show the start and end probabilities of every token of a passage, and the answer to a question."""
    from hornbook.inference.predictor import load_predictor
    from hornbook.show.answers import show_answer

    print_visualization(show_answer(load_predictor(model, device), question, passage), html)
