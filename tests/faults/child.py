"""What a process of this suite runs: one command line, or many one after the other, perhaps with a fault in it."""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

PROGRAM = "import sys\nfrom child import main\nmain(sys.argv[1])"
SHARD_TOKENS = 600  # so that a tiny corpus has several shards
SECONDS_EACH = 60


def main(file: str) -> None:
    """Runs the commands in the JSON file; all output goes to its `log`."""
    asked = json.loads(Path(file).read_text(encoding="utf-8"))
    os.setsid()
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    from hornbook.data.build import build_corpus

    build_corpus.__kwdefaults__["shard_tokens"] = SHARD_TOKENS
    if "lines" in asked:
        _run_many(asked)
    else:
        _run_one(asked)


def _run_one(asked: dict) -> None:
    from hornbook.__main__ import main as run
    from hornbook.lifecycle import stopping

    stopping.install()  # as the command does before its imports, which are made here already
    operations = None
    if fault := asked.get("fault"):
        from injection import Operations, install

        operations = Operations(asked["work"], **fault)
        install(operations)
    while asked.get("start") and not os.path.exists(asked["start"]):
        time.sleep(0.001)  # several processes begin at the same moment
    sys.argv = ["hornbook", *asked["words"]]
    Path(asked["ready"]).touch()
    try:
        run()
    finally:
        if operations and operations.kind == "count":
            operations.kind = "over"
            Path(asked["points"]).write_text(json.dumps(operations.seen))


def _run_many(asked: dict) -> None:
    """Writes the result of each command: [exit status, output, the traceback if there is one]."""
    from hornbook import cli

    def out_of_time(*_: object) -> None:
        raise TimeoutError(f"it has not ended within {SECONDS_EACH} seconds")

    signal.signal(signal.SIGALRM, out_of_time)
    for words in asked["lines"]:
        began = os.fstat(1).st_size
        sys.argv = ["hornbook", *words]
        status, wrong = 0, None
        signal.alarm(SECONDS_EACH)
        os.environ["HORNBOOK_TRACEBACK"] = ""
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            status, wrong = 1, traceback.format_exc()
        signal.alarm(0)
        said = Path(asked["log"]).read_bytes()[began:].decode("utf-8", errors="replace")
        with open(asked["results"], "a", encoding="utf-8") as results:
            results.write(json.dumps([status, said[-2000:], wrong]) + "\n")
