"""The metrics of `/metrics`, in Prometheus' format."""

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hornbook.serve.engine import BatchReport, Engine
from hornbook.serve.generation import GenerationEngine

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge, histogram = (partial(kind, registry=self.registry) for kind in (Counter, Gauge, Histogram))
        self.requests = counter("hornbook_requests", "Requests answered.", ["path", "status"])
        self.seconds = histogram("hornbook_request_seconds", "Time to answer.", ["path"], buckets=SECONDS)
        self.batch_jobs = histogram("hornbook_batch_requests", "Requests per batch.", ["model"], buckets=SIZES)
        self.batch_tokens = histogram("hornbook_batch_tokens", "Tokens per batch.", ["model"], buckets=SIZES)
        self.batch_seconds = histogram("hornbook_batch_seconds", "Time per batch.", ["model"], buckets=SECONDS)
        self.waited = histogram("hornbook_queue_seconds", "Time in the queue.", ["model"], buckets=SECONDS)
        self.generated = counter("hornbook_generated_tokens", "Tokens generated.", ["model"])
        self.waiting = gauge("hornbook_waiting_requests", "Requests in the queue.", ["model"])
        self.running = gauge("hornbook_running_requests", "Requests being computed.", ["model"])

    def watch(self, name: str, engines: Sequence[Engine | GenerationEngine]) -> None:
        """Reports the queues of a model."""
        self.waiting.labels(name).set_function(lambda: sum(len(engine.waiting) for engine in engines))
        self.running.labels(name).set_function(lambda: sum(engine.num_running for engine in engines))

    def batch(self, name: str, report: BatchReport) -> None:
        self.batch_jobs.labels(name).observe(report.num_jobs)
        self.batch_tokens.labels(name).observe(report.num_tokens)
        self.batch_seconds.labels(name).observe(report.seconds)
        self.waited.labels(name).observe(report.waited)

    def text(self) -> bytes:
        return generate_latest(self.registry)
