"""Documents: how foreign files are read. Tools in, values out: no queue, no table, no room's word.

`ocr.py` and `shape.py` hold the two Protocols that stages work with: an `OCRProvider` turns a file into markdown and
pages, a `PostProcessor` turns those into JSON. `ground.py` says where on a page a text stands. `errors.py` is what can
be wrong with a file. Functions that touch foreign bytes run in the sandbox; `files.py` brings them the bytes.
"""
