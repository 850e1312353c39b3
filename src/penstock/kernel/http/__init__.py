"""HTTP: what holds for every request, and how errors look on the wire.

`front.py` is what every request passes first: it takes the body in (`intake.py`), sees that the answer has our headers
(`headers.py`) and is packed (`packing.py`), and counts and tells of it (`visit.py`, `request_log.py`). `under_way.py`
lets a stop wait. `routes.py` finds the route. `problems.py` turns errors into answers, with the fields that do not fit
(`fields.py`) and in the caller's language (`language.py`); `envelope.py` is the other shape that some routes keep.
`sse.py` is an answer that does not end, `key_in_url.py` refuses secrets in addresses, `parts.py` is given to routes.
"""
