"""Runs that are killed and resumed, and runs on Slurm and Ray, whose commands are stood in for."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_web_corpus import counts, rows_of
from web_pages import pages, write_warc

from hornbook.data.web import build
from hornbook.data.web.build import build_web_corpus

SCRIPT = """
import sys
from hornbook.data.web import build

if __name__ == "__main__":
    build.TASK_BYTES = 1
    build.build_web_corpus(sys.argv[1], sys.argv[2], workers=1, keep_near_duplicates=True)
"""


@pytest.fixture
def crawl(tmp_path):
    folder = tmp_path / "crawl"
    folder.mkdir()
    for number, start in enumerate((0, 4, 8)):
        write_warc(folder / f"{number}.warc.gz", pages()[start : start + 4])
    return folder


def children(pid: int) -> set[int]:
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            found |= {int(name), *children(int(name))}
    return found


@pytest.mark.faults
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_killed_run_resumes_with_the_tasks_that_are_left(crawl, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, script, crawl, tmp_path / "out"], start_new_session=True)
    first = tmp_path / "out" / "work" / "logs" / "pages" / "completions" / "00000"
    deadline = time.monotonic() + 120
    while not first.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    running = children(process.pid)
    process.kill()
    process.wait()
    while any(os.path.exists(f"/proc/{each}") for each in running):
        assert time.monotonic() < deadline, "a worker outlives the run"
        time.sleep(0.05)
    assert not (tmp_path / "out" / "texts").exists()
    before = first.stat().st_mtime_ns
    kept = tmp_path / "out" / "work" / "pages" / "00000.jsonl.gz"
    written = kept.stat().st_mtime_ns
    seen = []

    def watch(now):
        if kept.exists():
            seen.append((first.stat().st_mtime_ns, kept.stat().st_mtime_ns))

    monkeypatch.setattr(build, "TASK_BYTES", 1)
    monkeypatch.setattr(build, "PROGRESS_SECONDS", 0.02)
    options = {"workers": 1, "keep_near_duplicates": True}
    record = build_web_corpus(crawl, tmp_path / "out", **options, on_progress=watch)
    assert set(seen) == {(before, written)}  # the finished task was not run again
    unbroken = build_web_corpus(crawl, tmp_path / "unbroken", **options)
    assert counts(record) == counts(unbroken)
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "unbroken")


SBATCH = """#!{python}
# Runs the tasks of an array job at once, one after the other.
import os, re, subprocess, sys
script = open(sys.argv[-1]).read()
with open("{folder}/jobs", "a+") as jobs:
    options = re.findall("--(?:partition|account|array|kill-on-invalid-dep)=\\\\S+", script)
    jobs.write(" ".join(sys.argv[1:-1] + options) + "\\n")
    jobs.seek(0)
    number = len(jobs.readlines())
last = int(re.search(r"--array=0-(\\d+)", script)[1]) if "--array=" in script else 0
for task in range(last + 1):
    env = dict(os.environ, SLURM_ARRAY_TASK_ID=str(task), SLURM_NODELIST="here", RUN_OFFSET="0")
    subprocess.run(["bash", "-c", script], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("Submitted batch job", number)
"""


def test_slurm_jobs(tmp_path, monkeypatch):
    commands = tmp_path / "bin"
    commands.mkdir()
    texts = {
        "sbatch": SBATCH.format(python=sys.executable, folder=tmp_path),
        "srun": '#!/bin/sh\nshift 3\nexec "$@"\n',  # after -l -n 1
        "scontrol": "#!/bin/sh\necho here\n",
        "squeue": f"#!/bin/sh\ncat {tmp_path}/queue\n",
    }
    for name, text in texts.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    (tmp_path / "queue").write_text("")
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    write_warc(tmp_path / "pages.warc", pages())
    options = {"executor": "slurm", "workers": 7, "keep_near_duplicates": True}
    with pytest.raises(ValueError, match=r"add partition=\.\.\. to sbatch="):
        build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options, sbatch={"time": "1:00:00"})
    options["sbatch"] = {"time": "1:00:00", "partition": "cpu", "account": "me"}
    submitted = build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options)
    assert len(submitted["submitted"]) == 3
    jobs = (tmp_path / "jobs").read_text().splitlines()
    assert "--partition=cpu --array=0-0%1 --kill-on-invalid-dep=yes --account=me" in jobs[0]
    assert f"--dependency=afterok:{submitted['submitted'][0]}" in jobs[2]
    record = json.loads((tmp_path / "out" / "web.json").read_text())
    assert counts(record)["quality"] == len(rows_of(tmp_path / "out")) == 10
    (tmp_path / "out" / "web.json").unlink()  # as if the last job had been killed
    shutil.rmtree(tmp_path / "out" / "work" / "logs" / "publish" / "completions")
    assert len(build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options)["submitted"]) == 1
    assert build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options)["already_built"]


def test_jobs_in_the_queue_are_not_submitted_again(tmp_path, monkeypatch):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("sbatch", "echo Submitted batch job 17"), ("squeue", "echo 17")):
        (commands / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/called\n{text}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    write_warc(tmp_path / "pages.warc", pages()[:1])
    options = {"executor": "slurm", "sbatch": {"time": "1:00:00", "partition": "cpu"}}
    assert set(build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options)["submitted"]) == {"17"}
    num_calls = (tmp_path / "called").read_text().count("sbatch")
    again = build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options)
    assert again["is_running"] and again["tasks"] == [0, 18]
    assert (tmp_path / "called").read_text().count("sbatch") == num_calls


def test_ray_is_an_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    write_warc(tmp_path / "pages.warc", pages()[:1])
    with pytest.raises(ValueError, match="pip install ray"):
        build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", executor="ray")


def test_ctrl_c_is_one_sentence(crawl, tmp_path):
    command = [sys.executable, "-m", "hornbook", "corpus", "web", str(crawl), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "out" / "work" / "request.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "run the same command again to resume" in errors, errors
    assert "Traceback" not in errors and "leaked" not in errors, errors
