"""Commands that use a pre-trained encoder without a task: `fill-mask`, `next-sentence`, `detect`."""

from pathlib import Path

from hornbook.cli.app import app, print_json
from hornbook.cli.options import FOLDER_OR_NAME, Device, argument, open_model, option, split_model, with_optional_model
from hornbook.terminal import print_result, table

MASKS = ("[MASK]", "<mask>")
SENTENCE_MODEL = "A model pre-trained to predict the next sentence, such as BERT"


@app.command("fill-mask", epilog='Example: hornbook fill-mask "Paris is the [MASK] of France." --top-k 3')
def fill_mask(
    arguments: with_optional_model("TEXT", "A text with [MASK] where words are missing.", "[MODEL]..."),
    top_k: option(int, "Predictions per mask.") = 5,
    graph: option(Path | None, "ERNIE: the knowledge graph whose entities it reads.") = None,
    device: Device = "auto",
) -> None:
    """Predict the masked tokens of a text. Several models, such as a teacher and its student, are compared."""
    from hornbook.interop.hub import builtin_for

    *models, text = arguments
    if len(models) > 1 and not any(mask in text for mask in MASKS):
        raise ValueError('quote texts that have spaces, as in: hornbook fill-mask "The book was [MASK] in 1998."')
    if len(models) > 1:
        if graph is not None:
            raise ValueError("--graph is for one model: leave it out, or name one ERNIE")
        _compare_masks(models, text, top_k, device)
        return
    masks = open_model(models[0] if models else builtin_for([text]), device=device).fill_mask(text, top_k, graph)
    for predictions in masks:
        rows = [(f"{prediction.probability:.2%}", prediction.word, prediction.text) for prediction in predictions]
        table(rows, ("", "word", "text"))
    print_json({"masks": [[vars(prediction) for prediction in predictions] for predictions in masks]})


def _compare_masks(models: list[str], text: str, top_k: int, device: str) -> None:
    from hornbook.inference.mask_comparison import compare_masks

    masks = compare_masks([open_model(model, device=device) for model in models], text, top_k)
    for tokens in masks:
        rows = [(each.token, *("-" if p is None else f"{p:.2%}" for p in each.probabilities)) for each in tokens]
        table(rows, ("token", *models))
        if any(None in each.probabilities for each in tokens):
            print_result("-: the vocabulary of the model has no single token for this text")
    print_json({"models": models, "masks": [[vars(each) for each in tokens] for tokens in masks]})


@app.command("next-sentence", epilog='Example: hornbook next-sentence runs/first "He went out." "It was raining."')
def next_sentence(
    arguments: argument(
        list[str],
        f"{SENTENCE_MODEL}: {FOLDER_OR_NAME} Then a sentence, and one that may follow it.",
        metavar="MODEL A B",
    ),
    device: Device = "auto",
) -> None:
    """Print the probability that sentence B follows sentence A."""
    if len(arguments) != 3:
        needed = f"{SENTENCE_MODEL[0].lower()}{SENTENCE_MODEL[1:]}"
        raise ValueError(f"next-sentence needs three arguments: {needed}, and two sentences in quotes")
    model, a, b = arguments
    probability = open_model(model, device=device).next_sentence(a, b)
    print_result(f"{probability:.1%} probability that the second sentence follows the first")
    print_json({"is_next": probability})


@app.command("detect", epilog='Example: hornbook detect "The chef ate the meal for his guests."')
def detect(
    arguments: with_optional_model("TEXT", "A text in which words may have been replaced."),
    threshold: option(float, "Mark words whose probability of being replaced is at least this.") = 0.5,
    device: Device = "auto",
) -> None:
    """Mark the words of a text that look replaced, with an ELECTRA discriminator."""
    from hornbook.inference.encoder import mark_words
    from hornbook.interop.hub import builtin_for

    model, text = split_model(arguments, "a text")
    if not 0 < threshold < 1:
        raise ValueError(f"--threshold must be between 0 and 1, not {threshold:g}")
    if not text.strip():
        raise ValueError("the text is empty: give a sentence in which words may have been replaced")
    words = open_model(model or builtin_for([text]), device=device).detect(text)
    marked = mark_words(text, [word for word in words if word.probability >= threshold])
    print_result(marked)
    table([(f"{word.probability:.1%}", word.word) for word in words], ("replaced", "word"))
    print_json({"marked": marked, "words": [vars(word) for word in words]})
