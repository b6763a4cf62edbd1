"""`hornbook serve` under load, compared with the same model offline.

    python benchmarks/serve.py [MODEL] [--seconds 20] [--rounds 3] [--words 40] [--overload 600]

Measures by turns, `--rounds` times: (1) texts per second of `embed` in Python, in one batch; (2) requests per second of
one text each over HTTP, from 32 clients that ask again as soon as they are answered. Then (3) latency when requests
arrive at random (Poisson) at 70% of that rate; (4) the same for `--overload` seconds at 150% of it or of the offline
rate, whichever is higher: how many are refused (429), the latency of the others, and the server's memory before, in the
middle and after. The clients run in this process and share the machine's cores with the server, and so do other jobs:
the ratio of CPU time per text, on Linux, does not depend on them. Set OMP_NUM_THREADS=1 to leave a core to the clients.
"""

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np

import hornbook

TEXT = "the river was wide and a teacher walked to the harbour in the morning with letters for her children"
CLIENTS = 32


def make_texts(num: int, num_words: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choice(TEXT.split()) for _ in range(draw.randint(num_words // 2, num_words))) for _ in range(num)
    ]


class Offline:
    """The same model in this process."""

    def __init__(self, model: str, texts: list[str]):
        self.model, self.texts = hornbook.load(model), texts[:256]
        self.model.embed(self.texts[:32])

    def measure(self, seconds: float) -> tuple[float, float]:
        """Texts per second, and milliseconds of CPU time per text."""
        started, used, num = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - started < seconds:
            self.model.embed(self.texts)
            num += len(self.texts)
        return num / (time.perf_counter() - started), 1000 * (time.process_time() - used) / num


def cpu_seconds(process: int) -> float:
    """CPU time that another process has used; 0 where that is unknown."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(process: int) -> float:
    """Memory of another process (RSS); 0 where that is unknown."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


class Load:
    def __init__(self, address: str, process: int, model: str, texts: list[str]):
        self.process, self.used = process, cpu_seconds(process)
        self.client = httpx.AsyncClient(base_url=address, timeout=120, limits=httpx.Limits(max_connections=2000))
        self.model, self.texts = model, texts
        self.latencies: list[float] = []
        self.statuses: list[int] = []
        self.megabytes: list[float] = []  # of the server, at each quarter of the time

    async def ask(self, number: int) -> None:
        started = time.perf_counter()
        body = {"model": self.model, "input": self.texts[number % len(self.texts)], "encoding_format": "base64"}
        try:
            status = (await self.client.post("/v1/embeddings", json=body)).status_code
        except httpx.TransportError:
            status = 0  # no answer
        self.statuses.append(status)
        if status == 200:
            self.latencies.append(time.perf_counter() - started)

    async def closed(self, seconds: float) -> float:
        """Requests per second of clients that ask again at once."""
        started = time.perf_counter()

        async def one(first: int) -> None:
            number = first
            while time.perf_counter() - started < seconds:
                await self.ask(number)
                number += CLIENTS

        await asyncio.gather(*map(one, range(CLIENTS)))
        return len(self.latencies) / (time.perf_counter() - started)

    async def open(self, rate: float, seconds: float) -> float:
        """Requests that arrive at random at `rate` per second; returns how many per second were answered."""
        draw, tasks, number = random.Random(0), set(), 0
        started = arrival = time.perf_counter()
        while arrival - started < seconds:
            if (arrival - started) / seconds * 4 >= len(self.megabytes):
                self.megabytes.append(megabytes(self.process))
            arrival += draw.expovariate(rate)
            await asyncio.sleep(max(0.0, arrival - time.perf_counter()))
            tasks.add(task := asyncio.create_task(self.ask(number)))
            task.add_done_callback(tasks.discard)
            number += 1
        await asyncio.gather(*tasks)
        self.megabytes.append(megabytes(self.process))
        return len(self.latencies) / (time.perf_counter() - started)

    @property
    def milliseconds(self) -> float:
        """CPU time of the server per answer."""
        return 1000 * (cpu_seconds(self.process) - self.used) / max(1, len(self.latencies))

    def line(self, what: str, rate: float) -> str:
        p50, p99 = np.percentile(self.latencies, [50, 99]) * 1000
        refused = self.statuses.count(429)
        others = len(self.statuses) - refused - len(self.latencies)
        return (
            f"{what}: {rate:.1f} answers/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms ({p99 / p50:.1f} x), "
            f"{len(self.statuses)} requests, {refused} refused (429), {others} other errors, "
            f"{self.milliseconds:.1f} ms of CPU time per answer"
        )


def start(model: str) -> tuple[subprocess.Popen, str]:
    words = [sys.executable, "-m", "hornbook", "serve", model, "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if found := re.search(r"serving on (\S+)", line):
            return process, found[1]
    raise SystemExit("the server did not start")


async def measure(
    address: str,
    process: int,
    name: str,
    offline: Offline,
    texts: list[str],
    seconds: float,
    rounds: int,
    overload: float,
) -> None:
    await Load(address, process, name, texts).closed(3)  # warms up
    alone, served = [], []
    for _ in range(rounds):
        alone.append(offline.measure(seconds / 2))
        load = Load(address, process, name, texts)
        served.append((await load.closed(seconds), load.milliseconds))
    (texts_rate, texts_used), (capacity, used) = (np.median(found, axis=0) for found in (alone, served))
    print(f"offline: {texts_rate:.1f} texts/s, {texts_used:.1f} ms of CPU time per text")
    print(load.line(f"{CLIENTS} clients, last round", served[-1][0]))
    print(
        f"{CLIENTS} clients beside offline, medians of {rounds} rounds: {capacity / texts_rate:.0%} of the throughput "
        f"(target 85%), {texts_used / used:.0%} by CPU time per text",
        flush=True,
    )
    for share, most, duration in ((0.7, capacity, seconds), (1.5, max(capacity, texts_rate), overload)):
        load = Load(address, process, name, texts)
        rate = await load.open(share * most, duration)
        print(load.line(f"{share:.0%} load ({share * most:.1f} requests/s, {duration:.0f} s)", rate), flush=True)
    print("memory of the server at each quarter:", ", ".join(f"{each:.0f}" for each in load.megabytes), "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="en")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--overload", type=float, default=20)
    chosen = parser.parse_args()
    texts = make_texts(1000, chosen.words, seed=0)
    offline = Offline(chosen.model, texts)
    process, address = start(chosen.model)
    try:
        name = httpx.get(f"{address}/models").json()["models"][0]["name"]
        asyncio.run(measure(address, process.pid, name, offline, texts, chosen.seconds, chosen.rounds, chosen.overload))
    finally:
        process.terminate()
        if process.wait() != 0:
            raise SystemExit(f"the server ended with status {process.returncode}")


if __name__ == "__main__":
    main()
