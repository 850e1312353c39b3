"""OpenTelemetry: a span for every request and job, exported to a collector over HTTP.

Imported only if OTEL_EXPORTER_OTLP_ENDPOINT is set. A background thread exports spans from a bounded queue: a slow or
unreachable collector costs spans, never a request. Incoming `traceparent` headers are honoured; `outgoing` returns one
for our own calls. A span contains the route template, never a query or an error message, which may contain secrets.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.kernel.http.exchange import HttpExchange
from penstock.kernel.logs import trace_id
from penstock.kernel.queue import Job
from penstock.kernel.workers import JobHandler, Settle

EXPORT_SECONDS = 5.0
CLOSE_SECONDS = 3.0  # to export the last spans on shutdown, even if the collector is unreachable
TRACEPARENT = b"traceparent"
SERVER_ERROR = 500


class OtelTracing:
    """Exports the requests and jobs of one process."""

    def __init__(self, endpoint: str, *, service_name: str, version: str, owner: str) -> None:
        attributes = {"service.name": service_name, "service.version": version, "service.instance.id": owner}
        self._provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("penstock", version)
        self._context = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, exchange: HttpExchange) -> Iterator[None]:
        """A span for a request, in the caller's trace if there is one."""
        attributes = {"http.request.method": exchange.known_method, "penstock.request_id": exchange.head.request_id}
        span = self._tracer.start_span(
            exchange.known_method, context=self._parent_context(exchange), kind=SpanKind.SERVER, attributes=attributes
        )
        try:
            with _current(span):
                yield
        finally:
            span.update_name(f"{exchange.known_method} {exchange.route}")
            span.set_attributes({"http.route": exchange.route, "http.response.status_code": exchange.status})
            if exchange.status >= SERVER_ERROR:
                span.set_status(StatusCode.ERROR)
            span.end()

    def jobs(self, handlers: Mapping[str, JobHandler]) -> dict[str, JobHandler]:
        """Wrap these handlers so that each run is a span."""
        return {kind: self._traced(handler) for kind, handler in handlers.items()}

    def outgoing(self) -> dict[str, str]:
        """The headers that put an outgoing call into the current trace; empty outside of one."""
        headers: dict[str, str] = {}
        self._context.inject(headers)
        return headers

    async def flush(self) -> None:
        """Export all queued spans."""
        await asyncio.to_thread(self._provider.force_flush)

    async def close(self) -> None:
        """Export queued spans for up to CLOSE_SECONDS, then stop."""
        # A daemon thread: the library itself would block for half a minute.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)

    def _parent_context(self, exchange: HttpExchange) -> Context:
        headers = {
            name.decode(): value.decode("latin-1") for name, value in exchange.scope["headers"] if name == TRACEPARENT
        }
        return self._context.extract(headers)

    def _traced(self, handler: JobHandler) -> JobHandler:
        async def run(job: Job) -> Settle | None:
            attributes: dict[str, str | int] = {
                "penstock.job.id": job.id,
                "penstock.job.room": job.module,  # the label of the metrics, too
                "penstock.job.attempt": job.attempts,
            }
            span = self._tracer.start_span(f"job {job.kind}", kind=SpanKind.CONSUMER, attributes=attributes)
            try:
                with _current(span):
                    return await handler(job)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise
            finally:
                span.end()

        return run


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Make the span current and put its trace id into log lines. Exception texts are not recorded: they are long."""
    token = trace_id.set(format_trace_id(span.get_span_context().trace_id))
    try:
        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    finally:
        trace_id.reset(token)
