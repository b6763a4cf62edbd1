"""`explain`: the paths of a knowledge graph by which a run chose an answer."""

from pathlib import Path

from hornbook.cli.app import app, print_json
from hornbook.cli.options import Device, argument, option
from hornbook.terminal import print_result, table

PAGE = "explanation.html"


@app.command(
    "explain",
    epilog="Example: hornbook explain runs/tools 'What do I dig with to plant flowers?' --choices 'trowel,excavator'",
)
def explain_command(
    run: argument(str, "Run that was fine-tuned with --graph GRAPH --reason kagnet."),
    question: argument(str, "The question."),
    choices: option(
        str | None, "The possible answers, comma-separated (or separated by |||, if they contain commas)."
    ) = None,
    context: option(str | None, "A text that goes before the question.") = None,
    out: option(Path | None, f"Page to write; defaults to {PAGE} in the run folder.") = None,
    top_k: option(int, "Paths to print for each answer.") = 5,
    device: Device = "auto",
) -> None:
    """Answer a question and show the paths of the graph that were weighed, as text and as a page with pictures."""
    import hornbook
    from hornbook.report.explained import write_explanation

    if choices is None:
        raise ValueError(
            "explain shows the paths of a knowledge graph between a question and its possible answers: give those by "
            "--choices; for what another model attends to, use hornbook show attention"
        )
    if top_k < 1:
        raise ValueError(f"--top-k must be at least 1, not {top_k}")
    explanation = hornbook.explain(run, question, choices.split("|||" if "|||" in choices else ","), context, device)
    rows = [
        (choice.text, f"{choice.probability:.1%}", f"{choice.without_paths:.1%}", len(choice.paths))
        for choice in explanation.choices
    ]
    table(rows, ("answer", "probability", "without paths", "paths"))
    for choice in sorted(explanation.choices, key=lambda choice: -choice.probability):
        print_result(f"\n{choice.text}" + ("" if choice.paths else ": no path"))
        for path in choice.paths[:top_k]:
            print_result(f"  {path.weight:6.1%}  {path.path}")
    page = write_explanation(out or Path(run) / PAGE, explanation.to_dict(), run)
    print_result(f"\n{explanation.answer}; pictures are in {page}")
    print_json({**explanation.to_dict(), "page": str(page)})
