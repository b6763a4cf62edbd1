"""Requests share batches, and nothing else."""

import asyncio
import threading

import pytest

from hornbook.serve.engine import Abandoned, Engine, QueueFull


class Echo:
    """An operation that notes its batches; the first call waits until it is released."""

    def __init__(self):
        self.batches, self.started, self.released = [], threading.Event(), threading.Event()

    def __call__(self, items, on_text):
        self.batches.append(list(items))
        self.started.set()
        self.released.wait(10)
        if "bad" in items:
            raise ValueError("a bad item")
        return [item.upper() for item in items]


def ask(engine, requests, echo, before_release=lambda jobs: None):
    """The answers or errors of (key, items, tokens) that wait behind a first request."""

    async def all_of_them():
        first = engine.submit("first", ["x"], echo, 1)
        await asyncio.to_thread(echo.started.wait, 10)
        jobs = [engine.submit(key, items, echo, num_tokens) for key, items, num_tokens in requests]
        before_release(jobs)
        echo.released.set()
        await first.future
        waited = [job.future for job in jobs if not job.is_cancelled]
        return await asyncio.gather(*waited, return_exceptions=True)

    found = asyncio.run(all_of_them())
    engine.close()
    return found


def test_waiting_requests_with_the_same_settings_are_one_batch_of_limited_tokens():
    echo = Echo()
    requests = [("a", ["p", "q"], 40), ("b", ["r"], 10), ("a", ["s"], 50), ("a", ["t"], 20), ("a", ["u"], 10)]
    assert ask(Engine(100, 10), requests, echo) == [["P", "Q"], ["R"], ["S"], ["T"], ["U"]]
    assert echo.batches == [["x"], ["p", "q", "s", "u"], ["r"], ["t"]]


def test_a_request_larger_than_a_batch_is_answered_alone():
    echo = Echo()
    assert ask(Engine(100, 10), [("a", ["p"], 500), ("a", ["q"], 1)], echo) == [["P"], ["Q"]]
    assert echo.batches == [["x"], ["p"], ["q"]]


def test_an_invalid_request_fails_alone():
    echo = Echo()
    found = ask(Engine(100, 10), [("a", ["p"], 1), ("a", ["bad"], 1), ("a", ["q"], 1)], echo)
    assert found[0] == ["P"] and found[2] == ["Q"] and str(found[1]) == "a bad item"
    assert echo.batches[1:] == [["p", "bad", "q"], ["p"], ["bad"], ["q"]]


def test_a_full_queue_refuses_and_cancelled_requests_make_room():
    echo, engine, refused = Echo(), Engine(100, 2), []

    def fill(jobs):
        with pytest.raises(QueueFull, match=r"try again in \d+ s") as found:
            engine.submit("a", ["z"], echo, 1)
        refused.append(found.value.seconds)
        jobs[0].cancel()
        engine.submit("a", ["y"], echo, 1)

    assert ask(engine, [("a", ["p"], 1), ("a", ["q"], 1)], echo, fill) == [["Q"]]
    assert refused[0] >= 1 and ["p"] not in echo.batches and echo.batches[-1] == ["q", "y"]


def test_generation_ends_when_its_client_is_gone():
    engine, shown, ended = Engine(100, 2), [], threading.Event()

    def run(items, on_text):
        try:
            for number in range(10**6):
                on_text(0, 0, str(number))
        except Abandoned:
            ended.set()
            raise
        return ["all"]

    async def stream():
        job = engine.submit("a", ["p"], run, 1, lambda *event: shown.append(event))
        while len(shown) < 3:
            await asyncio.sleep(0.001)
        job.cancel()
        assert await asyncio.to_thread(ended.wait, 10)
        return await engine.submit("b", ["q"], lambda items, on_text: items, 1).future

    assert asyncio.run(stream()) == ["q"] and shown[:3] == [(0, 0, "0"), (0, 0, "1"), (0, 0, "2")]
    engine.close()


def test_several_threads_work_side_by_side():
    engine, both = Engine(100, 10, num_threads=2), threading.Barrier(2, timeout=10)

    def run(items, on_text):
        both.wait()
        return items

    async def two():
        return await asyncio.gather(*(engine.submit(key, [key], run, 1).future for key in "ab"))

    assert asyncio.run(two()) == [["a"], ["b"]]
    engine.close()
