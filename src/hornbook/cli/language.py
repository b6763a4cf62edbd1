"""Commands for language models: `generate`, `score`, `perplexity`, `minimal-pairs`, `lm-eval`, `prompt`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hornbook.cli.app import app, given_options, log_problems, print_json, refuse_missing, refuse_unused_options
from hornbook.cli.corpora import FILES_HELP, TextColumn
from hornbook.cli.options import (
    FOLDER_OR_NAME,
    Device,
    Documents,
    Gpt,
    Model,
    Overwrite,
    Seed,
    argument,
    comma_separated,
    flag,
    open_model,
    option,
    split_model_and_texts,
    with_optional_model,
)
from hornbook.cli.overwriting import overwriting, refuse_both
from hornbook.terminal import answering_display, counting_display, log, print_result, table

Weights = option(str, "float, or int8: quantise a GPT's matrices to 8 bits, which is faster on a CPU.")


@app.command(
    "generate", epilog='Example: hornbook generate runs/gpt "Once upon a time" --max-new-tokens 50 --top-p 0.9'
)
def generate(
    model: argument(str, f"A GPT, or with --fill an encoder such as en: {FOLDER_OR_NAME}"),
    prompt: argument(str, "Prompt to continue; '' starts from the end-of-text token."),
    max_new_tokens: option(
        int | None,
        "Maximum number of tokens to generate (default 100); with --fill, appended masks (10).",
    ) = None,
    temperature: option(float | None, "Sampling temperature; 0 is greedy decoding.") = None,
    top_k: option(int | None, "Sample from the k most likely tokens.") = None,
    top_p: option(float | None, "Sample from the most likely tokens with this total probability.") = None,
    repetition_penalty: option(float, "Above 1, tokens already in the text become less likely.") = 1.0,
    num_beams: option(int, "Beam search with this many beams, instead of sampling.") = 1,
    length_penalty: option(float, "For --num-beams: above 0 prefers longer texts.") = 1.0,
    stop: option(list[str] | None, "Stop before this text; may be given several times.") = None,
    seed: Seed = 0,
    num_return_sequences: option(int, "Number of texts to generate.") = 1,
    slide: flag("--slide", "Continue past the context length, keeping its last half as context.") = False,
    fill: flag("--fill", "With an encoder: fill in masks one by one, in the text or after it.") = False,
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Generate text with a GPT. Output is streamed."""
    from hornbook.inference.encoder import NUM_MASKS, EncoderModel
    from hornbook.inference.generation import MAX_NEW_TOKENS

    sampling = given_options("temperature", "top_k", "top_p", "seed")
    if fill:
        others = ("num_beams", "length_penalty", "repetition_penalty", "stop", "num_return_sequences", "slide")
        refuse_unused_options("with --fill", sampling + given_options(*others))
    elif num_beams > 1:
        refuse_unused_options("with --num-beams, which does not sample", sampling)
    else:
        refuse_unused_options("without --num-beams", given_options("length_penalty"))
    loaded = open_model(model, weights, device)
    if fill:
        if not isinstance(loaded, EncoderModel):
            raise ValueError(f"--fill is for encoders, and {model} is a GPT: leave out --fill")
        text = loaded.fill(prompt, NUM_MASKS if max_new_tokens is None else max_new_tokens)
        print_result(text)
        print_json({"filled": text})
        return
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty}
    options |= {"num_beams": num_beams, "length_penalty": length_penalty, "seed": seed}
    options["num_return_sequences"] = num_return_sequences
    options["max_new_tokens"] = MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens
    stream = _Stream(prompt) if num_return_sequences == 1 else None  # several texts are printed when all are finished
    try:
        texts = loaded.generate(prompt, **options, stop_strings=stop or (), slide=slide, on_text=stream)
    except KeyboardInterrupt:
        print_result("")  # ends the line of the text so far
        raise
    if stream is not None:
        print_result(stream.before)  # the prompt, if nothing was generated
    else:
        for i, generated in enumerate(texts, 1):
            print_result(f"--- {i}\n{prompt}{generated.text}")
    if any(generated.finish_reason == "context" for generated in texts):
        context = loaded.model.config.max_positions
        advice = "" if num_beams > 1 else "; --slide continues past it"
        log(f"note: generation stopped as the context of {context:,} tokens is full{advice}")
    print_json({"prompt": prompt, "texts": [vars(generated) for generated in texts]})


class _Stream:
    """Prints the prompt before the first new text, and each new text at once."""

    def __init__(self, prompt: str):
        self.before = prompt

    def __call__(self, prompt: int, sample: int, text: str) -> None:
        print_result(self.before + text, end="")
        self.before = ""


@app.command("score", epilog='Example: hornbook score runs/gpt "The cat sat." "Sat cat the."')
def score(
    arguments: with_optional_model("TEXTS...", "One or several texts to score."),
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Print the log-probability of texts, in total and per token."""
    from hornbook.interop.hub import builtin_for

    model, texts = split_model_and_texts(arguments)
    if empty := [i for i, text in enumerate(texts, start=1) if not text.strip()]:
        raise ValueError(f"text {empty[0]} is empty, so there is nothing to score: leave it out")
    loaded = open_model(model or builtin_for(texts), weights, device)
    scores = loaded.score(texts)
    rows = [(f"{each.total:.3f}", f"{each.per_token:.3f}", len(each.tokens), each.text) for each in scores]
    table(rows, ("log p", "per token", "tokens", "text"))
    definition = loaded.score_definition()
    print_result(definition)
    values = [
        {"text": each.text, "log_probability": each.total, "per_token": each.per_token}
        | {"tokens": each.tokens, "log_probabilities": each.log_probabilities}
        for each in scores
    ]
    print_json({"definition": definition, "scores": values})


@app.command("minimal-pairs", epilog="Example: hornbook minimal-pairs runs/gpt --data blimp_filtered --out pairs.jsonl")
def minimal_pairs_command(
    model: Model,
    data: option(Path, "A .jsonl file, or a folder of them, with sentence_good and sentence_bad, or with options."),
    within_word: flag("--within-word", "Encoders: also mask the later tokens of the scored token's word.") = False,
    direction: option(str | None, "For a hybrid GPT: causal (default), bidirectional, or fused (their sum).") = None,
    out: option(Path | None, "Write the log-probabilities to this .jsonl file.") = None,
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Score minimal pairs (BLiMP): how often the acceptable sentence gets the higher probability."""
    from hornbook.evaluation.minimal_pairs import minimal_pairs

    options = {"within_word": within_word, "direction": direction, "out": out, "weights": weights, "device": device}
    with counting_display("scoring", "sentences") as show:
        result = minimal_pairs(model, data, **options, on_progress=show)
    mean = [("mean of the paradigms", result.mean)] if len(result.paradigms) > 1 else []
    rows = [
        (name, f"{each.num_pairs:,}", f"{100 * each.value:.1f}", f"{100 * each.low:.1f} to {100 * each.high:.1f}")
        for name, each in [*result.paradigms.items(), *mean]
    ]
    table(rows, ("paradigm", "pairs", "accuracy %", "95% interval"))
    print_result(
        f"{100 * result.mean.value:.1f}% of the acceptable sentences get the higher probability; {result.definition}"
    )
    print_json(result.to_dict())


@app.command("perplexity", epilog="Example: hornbook perplexity runs/gpt book.txt --stride 512")
def perplexity(
    model: Gpt,
    file: argument(Path, "A file or folder: " + FILES_HELP.partition(": ")[2]),
    stride: option(int | None, "Tokens between window starts; defaults to half the context.") = None,
    documents: Documents = "blank-line",
    baseline: option(Path | None, "Also report a 5-gram baseline trained on this corpus folder or text file.") = None,
    text_column: TextColumn = None,
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Measure how well a model predicts a text: per token, per word and in bits per byte."""
    from hornbook.data.problems import Problems
    from hornbook.report.formatting import counted

    if baseline is not None and not baseline.exists():
        raise ValueError(f"{baseline} does not exist: check the spelling of --baseline")
    if baseline is not None and file.exists() and baseline.samefile(file):
        raise ValueError("--baseline is the file that is scored: give another text to train the 5-grams on")
    problems = Problems()
    loaded = open_model(model, weights, device)
    options = {"text_column": text_column, "problems": problems}
    with counting_display("scoring", "tokens") as show:
        result = loaded.perplexity(file, stride, documents, **options, on_progress=show)
    log_problems(problems.to_dict())
    results = [result]
    if baseline is not None:
        log(f"training 5-grams on {baseline}")
        results.append(loaded.ngram_perplexity(file, baseline, documents, text_column=text_column))
    rows = [
        ("perplexity per token", "per_token", f"{result.num_tokens:,} tokens"),
        ("perplexity per word", "per_word", f"{result.num_words:,} words"),
        ("bits per byte", "bits_per_byte", f"{result.num_bytes:,} bytes"),
    ]
    table(
        [(name, *(f"{getattr(each, metric):.4g}" for each in results), count) for name, metric, count in rows],
        () if baseline is None else ("", "model", "5-grams", "of"),
    )
    print_result(f"of {counted(result.num_documents, 'document')}; {result.definition}")
    for ngrams in results[1:]:
        print_result(f"5-grams: {ngrams.definition}")
    print_json(result.to_dict() | ({} if baseline is None else {"baseline": results[1].to_dict()}))


@app.command("lm-eval", epilog="Example: hornbook lm-eval runs/gpt --tasks lambada_openai,wikitext --limit 200")
def lm_eval(
    model: Gpt,
    tasks: option(str, "Task names of the harness, comma-separated."),
    shots: option(int | None, "Few-shot examples; defaults to the task's own number.") = None,
    limit: option(int | None, "Evaluate only this many examples per task.") = None,
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Evaluate a GPT on tasks of lm-evaluation-harness."""
    from hornbook.extras import import_extra

    harness = import_extra("lm_eval", "lm-eval", "lm-eval needs")
    from hornbook.evaluation.harness import scores_in
    from hornbook.evaluation.harness_model import HornbookLM

    options = {"tasks": comma_separated(tasks), "num_fewshot": shots, "limit": limit, "log_samples": False}
    evaluation = harness.simple_evaluate(model=HornbookLM(model, weights, device), **options)
    rows = [
        (*each[:3], f"{each.value:.4f}", "" if each.standard_error is None else f"± {each.standard_error:.4f}")
        for each in scores_in(evaluation["results"])
    ]
    table(rows, ("task", "metric", "filter", "value", "standard error"))
    if limit is not None:
        log(f"note: scored on the first {limit} examples of each task only; do not compare with full results")
    print_json({"results": evaluation["results"], "versions": evaluation.get("versions", {}), "limit": limit})


@app.command(
    "prompt",
    epilog="Example: hornbook prompt runs/gpt --task sst-2-question --data glue/SST-2 --shots 0,1,8 --out shots",
)
def prompt_command(
    model: argument(str | None, "A GPT: a run folder, a folder, or a Hugging Face name.") = None,
    task: option(str | None, "A shipped task (see --list), or your own .toml file.") = None,
    data: option(str | None, "Folder or file with the task's examples.") = None,
    out: option(Path | None, "Folder for predictions, scores and report.") = None,
    shots: option(str, "Numbers of few-shot examples, such as 0,1,8.") = "0",
    seeds: option(int, "Number of few-shot samples drawn per --shots value.") = 3,
    limit: option(int | None, "Ask only this many questions, always the same ones.") = None,
    normalize: option(str | None, "Length normalisation of choices: token, byte, sum or answer.") = None,
    dictionary: option(
        Path | None, "Dictionary of the word-by-word baseline: a word and its translation per line."
    ) = None,
    resume: flag("--resume", "Resume what is in --out, or start it.") = False,
    is_list: flag("--list", "List the shipped tasks and exit.") = False,
    show: flag("--show", "Print the prompt of one question and exit.") = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Evaluate a GPT on a task by prompting, by number of few-shot examples. Ctrl-C saves; --resume resumes."""
    if is_list:
        _list()
        return
    refuse_both(overwrite, resume)
    is_resumed = resume and out is not None and (out / "run.json").exists()
    if (task is None or data is None) and (show or not is_resumed):
        missing = "--task" if task is None else "--data"
        if resume and not show:
            refuse_missing("MODEL" if model is None else missing, "prompt", out, resume)
        raise ValueError(f"prompt needs {missing}; --list names the shipped tasks")
    num_shots = _numbers(shots)
    if show:
        _show(task, data, num_shots)
        return
    if out is None or (model is None and not is_resumed):
        refuse_missing("--out" if out is None else "MODEL", "prompt", out, resume)
    from hornbook.evaluation.prompting.prompt import prompt
    from hornbook.report.formatting import metric_label
    from hornbook.report.prompting import degenerate_note, score_table

    options = {"shots": num_shots, "seeds": seeds, "limit": limit, "normalize": normalize, "dictionary": dictionary}
    options |= {"resume": resume, "device": device}
    replaced = overwriting(out, {"prompted task"}, overwrite, resume)
    with replaced, answering_display() as on_progress, _explain_how_to_resume(out):
        result = prompt(model, task, data, out, **options, on_progress=on_progress, log=log)
    headings, rows = score_table(result)
    table(rows, headings)
    for name, metric in result["metrics"].items():
        print_result(f"{metric_label(name)}: {metric['words']}")
    if reason := degenerate_note(result):
        log(f"note: {reason}")
    print_result(f"{result['interval']}; {result['questions']:,} questions; {out / 'report.html'}")
    print_json({"out": str(out), "points": result["points"], "baselines": result["baselines"]})


@contextlib.contextmanager
def _explain_how_to_resume(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the answers are saved in {out}: rerun with --resume") from None


def _numbers(shots: str) -> list[int]:
    parts = [part.strip() for part in shots.split(",")]
    if not all(part.isdigit() for part in parts):
        raise ValueError(f"--shots takes comma-separated numbers from 0, such as 0,1,8, not '{shots}'")
    return [int(part) for part in parts]


def _list() -> None:
    from hornbook.files import shipped_names
    from hornbook.tasks.text.definition import SHIPPED, read_task

    tasks = [read_task(name) for name in shipped_names(SHIPPED)]
    rows = [(task.name, ", ".join(task.metrics), task.about) for task in tasks]
    table(rows, ("task", "metrics", "description"), is_prose=True)
    print_json({task.name: task.about for task in tasks})


def _show(task: str, data: str, shots: list[int]) -> None:
    """Prints the prompt of the first question, regardless of the context length of any model."""
    from hornbook.tasks.text.definition import AS_WRITTEN, read_task
    from hornbook.tasks.text.prompts import shown_prompts

    prompts = shown_prompts(read_task(task), data, shots)
    for shown in prompts:
        variant = "" if shown["variant"] == AS_WRITTEN else f", {shown['variant']}"
        print_result(f"--- examples: {shown['shots']}{variant}\n{shown['prompt']}")
        print_result(f"--- answers: {' |'.join(shown['answers'])}")
    print_json({"prompts": prompts})
