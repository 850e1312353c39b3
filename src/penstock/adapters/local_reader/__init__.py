"""The OCR provider `local`: documents are read on this machine, nothing leaves it.

A PDF page with a usable text layer is read from it, many pages per call; every other page, and every image, is read by
OCR, page by page. Parsers and decoders run in one sandbox; the OCR engine has its own, whose zygote has it loaded.

   reader.py  the provider; images and text files     pdfs.py  pages of a PDF
   papers.py  checkpoints, results                    book.py  an open document and its sandbox sessions
"""

from penstock.adapters.local_reader.bounds import ReaderLimits
from penstock.adapters.local_reader.reader import LocalReader, engine_sandbox, parser_sandbox

__all__ = ["LocalReader", "ReaderLimits", "engine_sandbox", "parser_sandbox"]
