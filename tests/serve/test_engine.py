"""Requests share batches, and nothing else."""

import asyncio
import threading
import weakref

import pytest
from small_gpts import saved_gpt

import hornbook as library
from hornbook.inference.generation import GenerationConfig
from hornbook.serve.engine import BatchEngine, GenerationEngine, QueueFull


class Echo:
    """An operation that notes its batches; the first call waits until it is released."""

    def __init__(self):
        self.batches, self.started, self.released = [], threading.Event(), threading.Event()

    def __call__(self, items):
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
    assert ask(BatchEngine(100, 10), requests, echo) == [["P", "Q"], ["R"], ["S"], ["T"], ["U"]]
    assert echo.batches == [["x"], ["p", "q", "s", "u"], ["r"], ["t"]]


def test_a_request_larger_than_a_batch_is_answered_alone():
    echo = Echo()
    assert ask(BatchEngine(100, 10), [("a", ["p"], 500), ("a", ["q"], 1)], echo) == [["P"], ["Q"]]
    assert echo.batches == [["x"], ["p"], ["q"]]


def test_an_invalid_request_fails_alone():
    echo = Echo()
    found = ask(BatchEngine(100, 10), [("a", ["p"], 1), ("a", ["bad"], 1), ("a", ["q"], 1)], echo)
    assert found[0] == ["P"] and found[2] == ["Q"] and str(found[1]) == "a bad item"
    assert echo.batches[1:] == [["p", "bad", "q"], ["p"], ["bad"], ["q"]]


def test_the_memory_of_a_batch_that_failed_is_free_before_its_requests_are_answered_alone():
    seen = []

    class Activations:
        pass

    class RunsOutOfMemory(Echo):
        def __call__(self, items):
            answers = super().__call__(items)
            activations = Activations()
            seen.append(weakref.ref(activations))
            if len(items) > 1:
                raise RuntimeError("out of memory")
            assert all(each() is None for each in seen[:-1])
            return answers

    assert ask(BatchEngine(100, 10), [("a", ["p"], 1), ("a", ["q"], 1)], RunsOutOfMemory()) == [["P"], ["Q"]]


def test_a_full_queue_refuses_and_cancelled_requests_make_room():
    echo, engine, refused = Echo(), BatchEngine(100, 2), []

    def fill(jobs):
        with pytest.raises(QueueFull, match=r"try again in \d+ s") as found:
            engine.submit("a", ["z"], echo, 1)
        refused.append(found.value.seconds)
        jobs[0].cancel()
        engine.submit("a", ["y"], echo, 1)

    assert ask(engine, [("a", ["p"], 1), ("a", ["q"], 1)], echo, fill) == [["Q"]]
    assert refused[0] >= 1 and ["p"] not in echo.batches and echo.batches[-1] == ["q", "y"]


# ---- generation


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine") / "gpt"
    saved_gpt(folder, end=None, n_positions=300)
    return library.load(folder)


def test_requests_join_and_leave_a_running_batch(gpt):
    """The second request is answered while the first, longer one runs; each text is that of its prompt alone."""
    engine, order, sizes = GenerationEngine(gpt, 3, 10), [], []
    step = engine.batch.step
    engine.batch.step = lambda: (sizes.append(len(engine.batch)), step())

    async def one(name, prompts, **settings):
        found = await engine.submit(engine.encode(prompts), GenerationConfig(**settings)).future
        order.append(name)
        return found

    async def several():
        long = asyncio.create_task(one("long", ["the river"], max_new_tokens=200, temperature=0.0))
        while len(sizes) < 5:
            await asyncio.sleep(0.001)
        short = one("short", ["bread", "한국어"], max_new_tokens=6, seed=4, num_return_sequences=2)
        return await asyncio.gather(long, short)

    (long,), short = asyncio.run(several())
    engine.close()
    assert order == ["short", "long"] and max(sizes) == 3 and sizes[:5] == [1] * 5
    assert long == gpt.generate("the river", 200, temperature=0.0)
    assert short == gpt.generate(["bread", "한국어"], 6, seed=4, num_return_sequences=2)


def test_a_cancelled_request_frees_its_slots(gpt):
    engine, shown = GenerationEngine(gpt, 1, 1), []

    async def stream():
        gone = engine.submit(
            engine.encode(["the"]), GenerationConfig(max_new_tokens=250), lambda *event: shown.append(event)
        )
        while len(shown) < 3:
            await asyncio.sleep(0.001)
        waits = engine.submit(engine.encode(["bread"]), GenerationConfig(max_new_tokens=3, temperature=0.0))
        with pytest.raises(QueueFull, match=r"try again in \d+ s"):
            engine.submit(engine.encode(["more"]), GenerationConfig(max_new_tokens=3))
        gone.cancel()
        found = await waits.future
        return found, len(shown)

    found, num_shown = asyncio.run(stream())
    engine.close()
    assert found == [gpt.generate("bread", 3, temperature=0.0)] and num_shown < 250 and not engine.running


def test_a_failure_of_the_model_ends_what_runs_and_nothing_else(gpt):
    engine = GenerationEngine(gpt, 2, 10)

    def fail():
        raise RuntimeError("out of memory")

    engine.batch.step = fail

    async def ask():
        with pytest.raises(RuntimeError, match="out of memory"):
            await engine.submit(engine.encode(["the"]), GenerationConfig(max_new_tokens=5)).future
        with pytest.raises(ValueError, match="more than the model's context"):
            engine.encode(["bread " * 400])
        return await engine.submit(engine.encode(["the"]), GenerationConfig(max_new_tokens=5, temperature=0.0)).future

    assert asyncio.run(ask()) == [gpt.generate("the", 5, temperature=0.0)]
    engine.close()


def test_requests_are_answered_again_after_a_failure_that_left_no_memory_for_a_new_cache(gpt, monkeypatch):
    engine, failures = GenerationEngine(gpt, 2, 10), []
    new_batch, cache = engine._new_batch, weakref.ref(engine.batch.decoding)

    def fail(*tokens):
        failures.append(cache() is None)
        raise RuntimeError("out of memory")

    engine.batch.decoding.step = fail

    async def ask():
        config = GenerationConfig(max_new_tokens=5, temperature=0.0)
        return await asyncio.wait_for(engine.submit(engine.encode(["the"]), config).future, 20)

    with pytest.raises(RuntimeError, match="out of memory"):
        asyncio.run(ask())
    monkeypatch.setattr(engine, "_new_batch", fail)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            asyncio.run(ask())
    assert failures == [False, True, True]  # the old cache is freed before a new one is made
    monkeypatch.setattr(engine, "_new_batch", new_batch)
    assert asyncio.run(ask()) == [gpt.generate("the", 5, temperature=0.0)]
    engine.close()


def test_a_prompt_that_cannot_be_read_fails_alone(gpt, monkeypatch):
    engine, started = GenerationEngine(gpt, 3, 10), threading.Event()
    add, bread = engine.batch.add, engine.encode(["bread"])[0]

    def add_all_but_bread(prompt, *arguments):
        if prompt == bread:
            raise RuntimeError("out of memory")
        return add(prompt, *arguments)

    monkeypatch.setattr(engine.batch, "add", add_all_but_bread)

    async def ask():
        config = GenerationConfig(max_new_tokens=100, temperature=0.0)
        running = engine.submit(engine.encode(["the"]), config, lambda *event: started.set())
        await asyncio.to_thread(started.wait, 20)
        failing = engine.submit(engine.encode(["the river", "bread"]), config)
        with pytest.raises(RuntimeError, match="out of memory"):
            await failing.future
        assert engine.running == [running]
        return await running.future

    assert asyncio.run(ask()) == [gpt.generate("the", 100, temperature=0.0)]
    engine.close()
