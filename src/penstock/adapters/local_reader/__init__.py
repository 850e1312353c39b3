"""The OCR provider `local` and page reader: documents are read on this machine, nothing leaves it.

A PDF page with a usable text layer is read from it, many pages per call; every other page, and every image, is read by
OCR, page by page. Parsers and decoders run in one sandbox; the OCR engine has its own, whose zygote has it loaded.

   reader.py     opens documents; the provider: all stretches in order    document.py  survey and pages of a stretch
   artifacts.py  checkpoints of OCR pages, and the results                limits.py    resource limits
"""

from penstock.adapters.local_reader.limits import ReaderLimits
from penstock.adapters.local_reader.reader import LocalReader, engine_sandbox, parser_sandbox

__all__ = ["LocalReader", "ReaderLimits", "engine_sandbox", "parser_sandbox"]
