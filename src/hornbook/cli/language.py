"""The verbs of models that go on with a text: `generate`, `score`, `perplexity`, `lm-eval`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Device, Json, Model, answer, app, refuse_idle, say_problems

Weights = Annotated[
    str, typer.Option(help="int8 rounds a GPT's matrices to 8 bits, which is faster on a CPU; or float, as they are.")
]


@app.command("generate", epilog='Example: hornbook generate runs/gpt "Once upon a time" --max-tokens 50 --top-p 0.9')
def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="What the text begins with; '' begins a new one.")],
    max_tokens: Annotated[
        int | None, typer.Option(help="At most so many tokens (100); with --fill, masks (10).")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1 the likely gets likelier; 0 takes the likeliest token each time.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from so many of the likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that make up this probability.")] = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1, tokens in the text get less likely.")] = 1.0,
    beams: Annotated[int, typer.Option(help="Search the likeliest text with so many beams; draws nothing.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Of beams: above 0 prefers longer texts.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be said several times.")] = None,
    seed: Annotated[int, typer.Option(help="Another one writes another text.")] = 0,
    num: Annotated[int, typer.Option(help="So many texts.")] = 1,
    slide: Annotated[
        bool, typer.Option("--slide", help="Go on over the end of the context: its last half is read anew.")
    ] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Let an encoder fill in masks one by one, in the text or at its end.")
    ] = False,
    weights: Weights = "float",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Go on with a text. The model is a GPT; what it writes is shown as it comes."""
    import hornbook
    from hornbook.infer.encoder import NUM_MASKS, EncoderModel
    from hornbook.infer.generation import MAX_TOKENS

    drawn = {"--temperature": temperature is not None, "--top-k": top_k is not None, "--top-p": top_p is not None}
    if fill:
        searched = {"--beams": beams > 1, "--length-penalty": length_penalty != 1}
        written = {"--repetition-penalty": repetition_penalty != 1, "--stop": bool(stop), "--seed": seed != 0}
        refuse_idle("with --fill", drawn | searched | written | {"--num": num > 1, "--slide": slide})
    elif beams > 1:
        refuse_idle("with --beams, which draws nothing", drawn | {"--seed": seed != 0})
    else:
        refuse_idle("without --beams", {"--length-penalty": length_penalty != 1})
    loaded = hornbook.load(model, weights, device)
    if fill:
        if not isinstance(loaded, EncoderModel):
            raise ValueError(f"--fill is for encoders, and {model} goes on with a text: leave it out")
        text = loaded.fill(prompt, NUM_MASKS if max_tokens is None else max_tokens)
        print(text)
        answer(as_json, {"filled": text})
        return
    stream = _Stream(prompt) if num == 1 and not as_json else None
    try:
        found = loaded.generate(
            prompt,
            MAX_TOKENS if max_tokens is None else max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            beams=beams,
            length_penalty=length_penalty,
            stop=stop or (),
            seed=seed,
            num=num,
            slide=slide,
            on_token=stream,
        )
    except KeyboardInterrupt:
        print()  # what was written so far ends its line
        raise
    if stream is not None:
        print(stream.before)  # the prompt, if nothing came after it
    else:
        for number, each in enumerate(found, 1):
            if num > 1:
                print(f"--- {number}")
            print(prompt + each.text)
    if any(each.ended == "context" for each in found):
        context = loaded.model.config.max_positions
        print(f"note: the context of {context:,} tokens is full; --slide goes on over its end", file=sys.stderr)
    answer(as_json, {"prompt": prompt, "texts": [vars(each) for each in found]})


class _Stream:
    """Prints the prompt before the first piece, and each piece at once."""

    def __init__(self, prompt: str):
        self.before = prompt

    def __call__(self, prompt: int, sample: int, text: str) -> None:
        print(self.before + text, end="", flush=True)
        self.before = ""


@app.command("score", epilog='Example: hornbook score runs/gpt "The cat sat." "Sat cat the."')
def score(
    model: Model,
    texts: Annotated[list[str], typer.Argument(help="Texts to compare.")],
    weights: Weights = "float",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Say how likely texts are: the log-probability of each, in all and per token."""
    import hornbook
    from hornbook.infer.encoder import EncoderModel
    from hornbook.terminal import say, table

    if empty := [number for number, text in enumerate(texts, start=1) if not text.strip()]:
        raise ValueError(f"text {empty[0]} is empty, so there is nothing to score: leave it out")
    loaded = hornbook.load(model, weights, device)
    scores = loaded.score(texts)
    rows = [(f"{each.total:.3f}", f"{each.per_token:.3f}", len(each.tokens), each.text) for each in scores]
    table(rows, ("log p", "per token", "tokens", "text"))
    is_pseudo = isinstance(loaded, EncoderModel) and not loaded.is_left_to_right
    definition = (
        "pseudo-log-likelihood: natural logarithms, each token masked in turn and the others seen"
        if is_pseudo
        else "natural logarithms, each token given those before it"
    )
    say(definition)
    found = [
        {"text": each.text, "log_probability": each.total, "per_token": each.per_token}
        | {"tokens": each.tokens, "log_probabilities": each.log_probabilities}
        for each in scores
    ]
    answer(as_json, {"definition": definition, "scores": found})


@app.command("perplexity", epilog="Example: hornbook perplexity runs/gpt book.txt --stride 512")
def perplexity(
    model: Model,
    file: Annotated[Path, typer.Argument(help=".txt, .jsonl or .parquet, plain or .gz, .xz, .zst.")],
    stride: Annotated[int | None, typer.Option(help="Windows begin so many tokens apart; half the context.")] = None,
    documents: Annotated[str, typer.Option(help="What a document is in a .txt: blank-line or file.")] = "blank-line",
    baseline: Annotated[
        Path | None, typer.Option(help="Beside it, 5-grams learned from this corpus folder or text file.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="The column of the text in a .jsonl or .parquet.")] = None,
    weights: Weights = "float",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure how well a model predicts a text: per token, per word and in bits per byte."""
    import hornbook
    from hornbook.data.problems import Problems
    from hornbook.report.wording import counted
    from hornbook.terminal import counting_display, say, table

    if documents not in ("blank-line", "file"):
        raise ValueError(f"--documents must be blank-line or file, not '{documents}'")
    if baseline is not None and not baseline.exists():
        raise ValueError(f"{baseline} does not exist: check the spelling of --baseline")
    if baseline is not None and file.exists() and baseline.samefile(file):
        raise ValueError(f"5-grams learned from {baseline} itself know it by heart: give --baseline another text")
    problems = Problems()
    loaded = hornbook.load(model, weights, device)
    with counting_display("reading") as show:
        found = loaded.perplexity(
            file,
            stride,
            documents,
            progress=lambda done, total: show(f"of {total:,} tokens", done),
            text_column=text_column,
            problems=problems,
        )
    say_problems(problems.as_dict())
    measures = [found]
    if baseline is not None:
        say(f"counting 5-grams of {baseline}")
        measures.append(loaded.ngram_perplexity(file, baseline, documents, text_column=text_column))
    rows = [
        ("perplexity per token", "per_token", f"{found.num_tokens:,} tokens"),
        ("perplexity per word", "per_word", f"{found.num_words:,} words"),
        ("bits per byte", "bits_per_byte", f"{found.num_bytes:,} bytes"),
    ]
    table(
        [(name, *(f"{getattr(each, what):.4g}" for each in measures), of) for name, what, of in rows],
        () if baseline is None else ("", "model", "5-grams", "of"),
    )
    say(f"of {counted(found.num_documents, 'document')}; {found.definition}")
    for each in measures[1:]:
        say(f"5-grams: {each.definition}")
    answer(as_json, found.as_dict() | ({} if baseline is None else {"baseline": measures[1].as_dict()}))


@app.command("lm-eval", epilog="Example: hornbook lm-eval runs/gpt --tasks lambada_openai,wikitext --limit 200")
def lm_eval(
    model: Model,
    tasks: Annotated[str, typer.Option(help="Names of the harness's tasks, with commas between.")],
    shots: Annotated[int | None, typer.Option(help="Examples before each question; the task's own number.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many examples of each task.")] = None,
    weights: Weights = "float",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Ask a GPT the tasks of lm-evaluation-harness."""
    from hornbook.terminal import say, table

    try:
        import lm_eval as harness
    except ModuleNotFoundError:
        raise ValueError("lm-evaluation-harness is not installed: pip install 'hornbook[lm-eval]'") from None
    from hornbook.infer.harness_model import HornbookLM

    asked = [name.strip() for name in tasks.split(",") if name.strip()]
    found = harness.simple_evaluate(
        model=HornbookLM(model, weights, device), tasks=asked, num_fewshot=shots, limit=limit, log_samples=False
    )
    rows = []
    for task, scores in found["results"].items():
        for name, value in scores.items():
            metric, _, filtered = name.partition(",")
            if filtered and not metric.endswith("_stderr") and isinstance(value, float):
                error = scores.get(f"{metric}_stderr,{filtered}")
                spread = f"± {error:.4f}" if isinstance(error, float) else ""
                rows.append((task, metric, "" if filtered == "none" else filtered, f"{value:.4f}", spread))
    table(rows, ("task", "metric", "filter", "value", "standard error"))
    if limit is not None:
        say(f"over the first {limit} examples of each task only: not to be compared with whole ones")
    answer(as_json, {"results": found["results"], "versions": found.get("versions", {}), "limit": limit})
