"""Page images: counted and measured before they are decoded, rotated upright, and converted to BGR."""

import io

import pytest
from PIL import Image

from penstock.documents.ocr.page_images import (
    ImagePages,
    PageImage,
    count_image_pages,
    decode_image_page,
    render_pdf_page,
)
from penstock.documents.rejections import DocumentRejected, Rejection
from tests.documents import pdf_files

MAX_PIXELS = 50_000_000
BLUE, RED = (0, 0, 250), (250, 0, 0)


def count(file: bytes, max_pixels: int = MAX_PIXELS, max_pages: int = 100) -> ImagePages | Rejection:
    return count_image_pages(io.BytesIO(file), max_pixels, max_pages)


def frame(file: bytes, number: int = 1) -> PageImage:
    return decode_image_page(io.BytesIO(file), number, MAX_PIXELS)


def tiff(*pictures: Image.Image) -> bytes:
    return pdf_files.saved_as(pictures[0], "TIFF", save_all=True, append_images=pictures[1:])


class TestFrames:
    def test_of_a_tiff_are_pages(self):
        file = tiff(*(Image.new("RGB", (30, 20 + at), RED) for at in range(3)))
        assert count(file) == ImagePages(pages=3)
        assert [frame(file, number).height for number in (1, 2, 3)] == [20, 21, 22]

    @pytest.mark.parametrize("kind", ["PNG", "WEBP"])
    def test_of_an_animation_are_one_page(self, kind: str):
        moments = [Image.new("RGB", (30, 20), (at * 40, 0, 0)) for at in range(3)]
        assert count(pdf_files.saved_as(moments[0], kind, save_all=True, append_images=moments[1:])) == ImagePages(
            pages=1
        )

    def test_are_refused_when_there_are_too_many(self):
        file = tiff(*(Image.new("L", (9, 9)) for _ in range(3)))
        assert count(file, max_pages=2) == Rejection(
            code="DOCUMENT_TOO_LARGE", reason="it has 3 pages; the limit is 2 (ETL_MAX_PAGES)"
        )


class TestSize:
    def test_is_checked_before_anything_is_decoded(self):
        huge = pdf_files.saved_as(Image.new("1", (10_000, 10_000)), "PNG")
        answer = count(huge)
        assert isinstance(answer, Rejection)
        assert answer.code == "DOCUMENT_TOO_LARGE"
        assert "10000 x 10000" in answer.reason
        assert "ETL_MAX_PAGE_PIXELS" in answer.reason
        assert count(huge[:200]) == answer  # the rest of the file was not needed for it

    def test_of_every_frame_counts(self):
        assert isinstance(count(tiff(Image.new("L", (9, 9)), Image.new("L", (50, 50))), max_pixels=1000), Rejection)

    def test_is_checked_by_the_decoder_too(self):
        with pytest.raises(DocumentRejected):
            decode_image_page(io.BytesIO(pdf_files.saved_as(Image.new("L", (50, 50)), "PNG")), 1, 1000)


class TestADecodedImage:
    def test_has_its_exif_orientation_applied(self):
        exif = Image.Exif()
        exif[0x0112] = 6  # turn it right by a quarter
        assert (lambda seen: (seen.width, seen.height))(
            frame(pdf_files.saved_as(Image.new("RGB", (40, 20), RED), "JPEG", exif=exif))
        ) == (20, 40)

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
    def test_is_converted_to_three_channels_of_eight_bits(self, mode: str):
        picture = pdf_files.picture_of(["Hello"])
        kind = "TIFF" if mode in {"CMYK", "I", "F"} else "PNG"
        seen = frame(pdf_files.saved_as(picture.convert("L").convert(mode), kind))
        assert seen.pixels.shape == (picture.height, picture.width, 3)
        assert seen.pixels.dtype == "uint8"
        assert not seen.is_blank

    def test_is_blue_green_red(self):
        assert frame(pdf_files.saved_as(Image.new("RGB", (4, 4), BLUE), "PNG")).pixels[0, 0].tolist() == [250, 0, 0]

    def test_has_a_white_background_where_it_is_transparent(self):
        assert frame(pdf_files.saved_as(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG")).pixels.min() == 255

    def test_of_one_colour_is_blank(self):
        assert frame(pdf_files.saved_as(Image.new("L", (40, 40), 240), "JPEG")).is_blank


class TestABrokenImage:
    @pytest.mark.filterwarnings("ignore:Corrupt EXIF")  # pillow says so before it fails
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
    def test_is_refused_wherever_it_was_truncated(self, kind: str):
        whole = pdf_files.saved_as(pdf_files.picture_of(pdf_files.INVOICE), kind)
        for size in (20, len(whole) // 2):
            with pytest.raises(DocumentRejected) as refused:
                frame(whole[:size])
            assert refused.value.rejection.code == "DOCUMENT_UNREADABLE"


class TestARenderedPage:
    def test_has_200_dots_per_inch(self):
        seen = render_pdf_page(io.BytesIO(pdf_files.pages_of("one")), 1, MAX_PIXELS)
        assert seen.pixels.shape[:2] == (2339, 1654)
        assert (seen.width, seen.height) == pytest.approx((595.28, 841.89), abs=0.01)
        assert seen.units_per_pixel == pytest.approx(0.36)

    def test_is_rendered_at_a_lower_resolution_where_it_is_too_large(self):
        seen = render_pdf_page(io.BytesIO(pdf_files.pages_of("one")), 1, 1_000_000)
        assert 990_000 < seen.pixels.shape[0] * seen.pixels.shape[1] < 1_005_000

    def test_that_does_not_exist_is_refused(self):
        with pytest.raises(DocumentRejected):
            render_pdf_page(io.BytesIO(pdf_files.pages_of("one")), 2, MAX_PIXELS)
