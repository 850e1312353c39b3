"""A parser that hangs on pages 3 and 4, in a sandbox like that of the real one."""

import time
from collections.abc import Sequence
from typing import BinaryIO

from penstock.adapters.local_reader.reader import PARSERS
from penstock.documents.pdf import text_layer
from penstock.documents.pdf.text_layer import TextLayers
from penstock.documents.rejections import Rejection
from penstock.kernel.sandbox.call import Sandbox, Warmup

BAD_PAGES = {3, 4}


def read_layers_or_hang(file: BinaryIO, first: int, last: int, suspects: Sequence[int]) -> TextLayers | Rejection:
    """Read text layers, but hang on a bad page."""
    if BAD_PAGES & set(range(first, last + 1)):
        time.sleep(1000)
    return text_layer.read_text_layers(file, first, last, suspects)


def stumbling_sandbox() -> Sandbox:
    """The sandbox for that parser."""
    return Sandbox(preload=(*PARSERS, __name__), warmup=Warmup(function=text_layer.load_parser), allow_socketpair=True)
