"""The OCR provider `local`: everything is read on this machine, nothing leaves it.

A PDF page whose text layer is real is read from it, in stretches of pages; every other page, and every image, is read
by OCR, page by page. Parsers and decoders run in one sandbox; the OCR engine has a sandbox of its own, whose zygote has
it loaded.

    reader.py  the provider          pdfs.py, pictures.py, flat.py  pages of each kind of file
    papers.py  what it keeps         book.py  an open document, and what it is read with
"""

from penstock.adapters.local_reader.bounds import ReaderLimits
from penstock.adapters.local_reader.reader import LocalReader, engine_sandbox, parser_sandbox

__all__ = ["LocalReader", "ReaderLimits", "engine_sandbox", "parser_sandbox"]
