"""OpenTelemetry: every request and every job as a span, sent to a collector over HTTP.

Only imported when OTEL_EXPORTER_OTLP_ENDPOINT is set. Spans wait in a queue of bounded length and a thread of their own
sends them: a collector that is slow or away costs spans, never a request. A caller's `traceparent` is taken, and
`outgoing` gives one to whom we call. Spans carry templates of routes and never a query: there are secrets in those.
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
CLOSE_SECONDS = 3.0  # for the last spans at a stop; a collector that is away does not get longer
TRACEPARENT = b"traceparent"
SERVER_ERROR = 500


class OtelTracing:
    """Tells a collector about the requests and jobs of one process."""

    def __init__(self, endpoint: str, *, service_name: str, version: str, owner: str) -> None:
        about = {"service.name": service_name, "service.version": version, "service.instance.id": owner}
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("penstock", version)
        self._context = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, exchange: HttpExchange) -> Iterator[None]:
        """A span for a request, as part of the caller's trace if they have one."""
        attributes = {"http.request.method": exchange.known_method, "penstock.request_id": exchange.head.request_id}
        span = self._tracer.start_span(
            exchange.known_method, context=self._caller(exchange), kind=SpanKind.SERVER, attributes=attributes
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
        """These handlers, each of whose runs is a span."""
        return {kind: self._traced(handler) for kind, handler in handlers.items()}

    def outgoing(self) -> dict[str, str]:
        """The header that makes a call of ours a part of the trace that is under way here; none outside of one."""
        headers: dict[str, str] = {}
        self._context.inject(headers)
        return headers

    async def flush(self) -> None:
        """Send what waits to be sent."""
        await asyncio.to_thread(self._provider.force_flush)

    async def close(self) -> None:
        """Send what waits, for a short time, and end."""
        # A thread that the process does not wait for: the library itself would wait half a minute.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)

    def _caller(self, exchange: HttpExchange) -> Context:
        carried = {
            name.decode(): value.decode("latin-1") for name, value in exchange.scope["headers"] if name == TRACEPARENT
        }
        return self._context.extract(carried)

    def _traced(self, handler: JobHandler) -> JobHandler:
        async def run(held: Job) -> Settle | None:
            about: dict[str, str | int] = {
                "penstock.job.id": held.id,
                "penstock.job.module": held.module,
                "penstock.job.attempt": held.attempts,
            }
            span = self._tracer.start_span(f"job {held.kind}", kind=SpanKind.CONSUMER, attributes=about)
            try:
                with _current(span):
                    return await handler(held)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise
            finally:
                span.end()

        return run


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """What is done inside belongs to the span, and log lines name its trace. Errors' texts stay out: they are long."""
    token = trace_id.set(format_trace_id(span.get_span_context().trace_id))
    try:
        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    finally:
        trace_id.reset(token)
