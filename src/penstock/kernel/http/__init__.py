"""HTTP: what every request passes through, and how errors look on the wire.

`middleware.py` is the one ASGI middleware. It checks the URL (`request_url.py`), reads the body (`request_body.py`),
adds our headers to the response (`headers.py`), compresses it (`compression.py`), counts it and logs it (`exchange.py`,
`request_log.py`). `in_flight.py` tracks running requests, so a shutdown can wait for them. `routes.py` finds the route
by an index. `problems.py` turns errors into RFC 9457 responses, with the invalid fields (`fields.py`) and in the
caller's language (`language.py`); `envelope.py` is the other response format, kept by some routes. `sse.py` streams
events. `dependencies.py` has what routes depend on.
"""
