"""An OpenTelemetry collector that keeps the spans it receives, or never answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """The received spans. Clear `answering` to accept requests without answering them."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.bodies: list[bytes] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.url = ""

    @property
    def spans(self) -> list[Span]:
        """Every span, in the order of arrival."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, str]:
        """The resource attributes of the first request."""
        attributes = self.requests[0].resource_spans[0].resource.attributes
        return {pair.key: pair.value.string_value for pair in attributes}

    async def take(self, request: web.Request) -> web.Response:
        """Receive one batch of spans."""
        body = await request.read()
        await self.answering.wait()
        self.bodies.append(body)
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        return web.Response(content_type="application/x-protobuf")


def attributes(span: Span) -> dict[str, str | int]:
    """The attributes of a span."""
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A running collector."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    collector.url = f"http://{host}:{port}"
    try:
        yield collector
    finally:
        collector.answering.set()
        await runner.cleanup()
