"""What `/metrics` reports, in Prometheus' format."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hornbook.serve.engine import BatchReport, Engine
from hornbook.serve.generation import GenerationEngine

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of = {"registry": self.registry}
        self.requests = Counter("hornbook_requests", "Requests answered.", ["path", "status"], **of)
        self.seconds = Histogram("hornbook_request_seconds", "Time to answer.", ["path"], buckets=SECONDS, **of)
        self.batch_jobs = Histogram("hornbook_batch_requests", "Requests per batch.", ["model"], buckets=SIZES, **of)
        self.batch_tokens = Histogram("hornbook_batch_tokens", "Tokens per batch.", ["model"], buckets=SIZES, **of)
        self.batch_seconds = Histogram("hornbook_batch_seconds", "Time per batch.", ["model"], buckets=SECONDS, **of)
        self.waited = Histogram("hornbook_queue_seconds", "Time in the queue.", ["model"], buckets=SECONDS, **of)
        self.generated = Counter("hornbook_generated_tokens", "Tokens generated.", ["model"], **of)
        self.waiting = Gauge("hornbook_waiting_requests", "Requests in the queue.", ["model"], **of)
        self.running = Gauge("hornbook_running_requests", "Requests being computed.", ["model"], **of)

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
