"""Gateway: receive files by tus 1.0.0, in requests that may be cut off anywhere.

`tus.py` reads the headers of the protocol. `create.py` makes an upload or joins partial ones, `write.py` moves its
offset, `end.py` terminates and expires. `api/receive.py` takes the bytes of a PATCH from the first to the last, and
`api/live_writers.py` keeps its lease. The bytes go to the staging area of the blob store (`kernel/staging.py`).
See docs/explanation/uploads.md.
"""
