"""Markdown of whole documents, compared with what a person would write."""

import io

from penstock.documents.pdf.text_layer import TextLayers, read_text_layers
from tests.documents import pdf_files
from tests.documents.pdf import articles
from tests.documents.pdf.articles import ICE, ICE_ZH, SPRING, SPRING_ZH, TOWN

TABLE = "| Month | Ships | Tonnes |\n|---|---|---|\n| January | 12 | 3,400 |\n| February | 9 | 2,150 |"


def pages_of(pdf: bytes, first: int = 1, last: int = 1) -> list[str]:
    layers = read_text_layers(io.BytesIO(pdf), first, last, ())
    assert isinstance(layers, TextLayers)
    return [layer.page.markdown for layer in layers.layers if layer.page]


def read(pdf: bytes) -> list[str]:
    """The blocks of the only page."""
    [page] = pages_of(pdf)
    return page.split("\n\n")


class TestHeadings:
    def test_below_a_title_of_the_same_size_are_not_part_of_it(self):
        pdf = articles.paper(
            articles.title("Annual Report of the Harbour"), articles.heading("Introduction"), articles.text(SPRING)
        )
        assert read(pdf) == ["# Annual Report of the Harbour", "# Introduction", SPRING]

    def test_have_levels_by_their_sizes_without_gaps(self):
        pdf = articles.paper(
            articles.title("Report"),
            articles.text("For the year 2026", fontSize=12, alignment=1),
            articles.heading("Ships", 2),
            articles.text(SPRING),
            articles.heading("Ice", 3),
            articles.text(ICE),
        )
        assert read(pdf) == ["# Report", "### For the year 2026", "## Ships", SPRING, "### Ice", ICE]

    def test_may_be_longer_than_a_line(self):
        long = "A Long Title of a Report on the Harbour and on All of the Ships That Came to It"
        pdf = articles.paper(articles.title(long), articles.heading("1. Introduction"), articles.text(SPRING))
        assert read(pdf) == [f"# {long}", "# 1. Introduction", SPRING]

    def test_may_be_bold_only(self):
        pdf = articles.paper(
            articles.title("SERVICE AGREEMENT"),
            articles.text("<b>1. Definitions</b>"),
            articles.text(f"1.1 {SPRING}"),
            articles.text(f"1.2 {ICE}"),
            articles.text("<b>2. Delivery</b>"),
            articles.text("(a) the Seller brings the goods to the quay;"),
            articles.text("(b) the Buyer takes them from there."),
        )
        assert read(pdf) == [
            "# SERVICE AGREEMENT",
            "## 1. Definitions",
            f"1.1 {SPRING}",
            f"1.2 {ICE}",
            "## 2. Delivery",
            "(a) the Seller brings the goods to the quay;",
            "(b) the Buyer takes them from there.",
        ]

    def test_have_the_same_level_on_pages_of_a_later_range(self):
        chapters = [
            [articles.heading(f"Chapter {at}", 2), articles.text(SPRING), articles.text(ICE), articles.next_page()]
            for at in range(3)
        ]
        pdf = articles.paper(articles.title("Report"), *(each for chapter in chapters for each in chapter))
        assert pages_of(pdf)[0].startswith("# Report\n\n## Chapter 0\n\n")
        assert [page.partition("\n")[0] for page in pages_of(pdf, 2, 3)] == ["## Chapter 1", "## Chapter 2"]

    def test_are_found_where_the_font_itself_has_no_size(self):
        line = "A line of text that is long enough for a paragraph of its own kind"
        pdf = articles.enlarged((18, "Enlarged"), *[(10, line)] * 3)
        assert read(pdf)[0] == "# Enlarged"

    def test_are_no_lines_of_labels_and_values(self):
        labels = ("Account holder: Helen Carmody", "Sort code: 20-45-11", "Account number: 40117725")
        larger = [articles.text(each, fontSize=12, spaceAfter=4) for each in labels]
        assert read(articles.paper(*larger, articles.text(SPRING), articles.text(ICE))) == [*labels, SPRING, ICE]


class TestParagraphs:
    def test_are_kept_apart_by_a_little_space(self):
        pdf = articles.paper(articles.heading("Ships"), articles.text(SPRING), articles.text(ICE), articles.text(TOWN))
        assert read(pdf) == ["# Ships", SPRING, ICE, TOWN]

    def test_are_kept_apart_by_how_their_last_lines_end(self):
        tight = {"spaceBefore": 0, "spaceAfter": 0}
        pdf = articles.paper(articles.text(SPRING, **tight), articles.text(TOWN, **tight), articles.text(ICE, **tight))
        assert read(pdf) == [SPRING, TOWN, ICE]

    def test_are_kept_apart_by_their_indents(self):
        indented = {"spaceBefore": 0, "spaceAfter": 0, "firstLineIndent": 18}
        pdf = articles.paper(*(articles.text(each, **indented) for each in (ICE, SPRING, TOWN)))
        assert read(pdf) == [ICE, SPRING, TOWN]

    def test_may_be_justified(self):
        pdf = articles.paper(articles.text(SPRING, alignment=4), articles.text(ICE, alignment=4))
        assert read(pdf) == [SPRING, ICE]

    def test_have_whole_words_where_a_line_cut_one(self):
        pdf = articles.typed(
            "The harbour took in more ships than in any year before, and most came in the spr-",
            "ing when one quay was free. A well-known fact is that they come when not ex-",
            "pected at all.",
            "",
            "Nobody had foreseen the ice of February.",
        )
        assert read(pdf) == [
            "The harbour took in more ships than in any year before, and most came in the spring when one quay was "
            "free. A well-known fact is that they come when not expected at all.",
            "Nobody had foreseen the ice of February.",
        ]

    def test_are_lines_where_lines_are_short(self):
        letter = ("Mill Street Paper Works", "12 Mill Street", "Bristol BS1 4QA", "", "Dear Ms Doe,", "")
        body = (
            "Thank you for your letter of 2 March. We are glad to hear that the paper has come in good",
            "order. The second delivery leaves us on Monday.",
            "",
            "Please tell us by Friday if you want the heavier kind.",
        )
        assert read(articles.typed(*letter, *body)) == [
            *(line for line in letter if line),
            f"{body[0]} {body[1]}",
            body[3],
        ]

    def test_are_rows_where_a_label_and_its_value_are_far_apart(self):
        assert [block for block in read(pdf_files.whole_invoice()) if "1,325.00" in block or "VAT" in block][-2:] == [
            "Subtotal 1,325.00",
            "VAT 19% 251.75",
        ]

    def test_go_on_in_the_next_column(self):
        story = [articles.heading("1 Ice", 2), *(articles.text(SPRING) for _ in range(9)), articles.text(ICE)]
        assert read(articles.two_columns(articles.title("A Study of Harbours"), *story)) == [
            "# A Study of Harbours",
            "## 1 Ice",
            *[SPRING] * 9,
            ICE,
        ]

    def test_stand_around_a_table(self):
        pdf = articles.paper(articles.text(SPRING), articles.table(), articles.text(ICE))
        assert read(pdf) == [SPRING, TABLE, ICE]

    def test_are_escaped_where_they_start_like_another_block(self):
        assert read(articles.typed("# is a number sign in *some* places")) == [
            "\\# is a number sign in \\*some* places"
        ]


class TestBoldWords:
    def test_at_the_beginning_of_a_paragraph_stay_bold(self):
        pdf = articles.paper(articles.text(f"<b>Ice.</b> {ICE}"), articles.text(f"<b>Ships:</b> {SPRING}"))
        assert read(pdf) == [f"**Ice.** {ICE}", f"**Ships:** {SPRING}"]

    def test_at_the_beginning_of_a_line_make_no_heading_of_it(self):
        pdf = articles.paper(articles.text("<b>Harbour Books Ltd.</b>, Bristol, 2019 to 2026"), articles.text(SPRING))
        assert read(pdf) == ["**Harbour Books Ltd.**, Bristol, 2019 to 2026", SPRING]

    def test_at_the_beginning_of_an_item_stay_bold(self):
        pdf = articles.paper(
            articles.text(SPRING),
            articles.text("1. <b>Valve.</b> Open it slowly."),
            articles.text("2. <b>Pressure.</b> Wait until it is low."),
        )
        assert read(pdf) == [SPRING, "1. **Valve.** Open it slowly.\n2. **Pressure.** Wait until it is low."]

    def test_within_a_paragraph_do_not_cut_it(self):
        bold = SPRING.replace("one quay", "<b>one quay</b>").replace("winter", "<b>winter</b>")
        assert read(articles.paper(articles.text(bold))) == [SPRING]


class TestLists:
    def test_have_items_whose_numbers_are_larger_than_their_text(self):
        items = ("A second crane on the north quay", "A new road to the station", "Longer opening hours")
        for form in ("%s.", "%s"):
            pdf = articles.paper(
                articles.heading("Plans"),
                articles.text(SPRING),
                articles.numbers(*items, form=form),
                articles.text(ICE),
            )
            assert read(pdf) == ["# Plans", SPRING, "\n".join(f"{at}. {each}" for at, each in enumerate(items, 1)), ICE]

    def test_have_items_of_several_lines(self):
        pdf = articles.paper(articles.bullets("First", SPRING, "Third"), articles.text(ICE))
        assert read(pdf) == [f"- First\n- {SPRING}\n- Third", ICE]

    def test_may_hold_lists(self):
        inner = articles.bullets("on the north quay", "with a motor of its own")
        pdf = articles.paper(
            articles.bullets([articles.text("A second crane"), inner], "A new road"), articles.text(SPRING)
        )
        assert read(pdf)[0] == "- A second crane\n   - on the north quay\n   - with a motor of its own\n- A new road"

    def test_may_hold_lists_with_letters(self):
        inner = articles.numbers("on the north quay", "with a motor", form="%s)", kind="a")
        pdf = articles.paper(
            articles.numbers([articles.text("A second crane"), inner], "A new road"), articles.text(SPRING)
        )
        assert read(pdf)[0] == "1. A second crane\n   - a) on the north quay\n   - b) with a motor\n2. A new road"

    def test_end_where_a_heading_has_the_next_number(self):
        pdf = articles.paper(
            articles.text(SPRING), articles.numbers("Step one"), articles.heading("2. Results"), articles.text(ICE)
        )
        assert read(pdf)[-2:] == ["# 2. Results", ICE]

    def test_do_not_begin_with_the_day_of_a_month(self):
        days = ("17 Sep 2026", "18 Sep 2026", "19 September 2026")
        assert read(articles.typed(*(line for day in days for line in (day, "")))) == [*days]


class TestEdgesOfThePage:
    def test_page_numbers_are_left_out_of_the_markdown_only(self):
        for footer in ("%d", "- %d -", "Page %d", "Page %d of 9", "%d / 9"):
            pdf = articles.paper(articles.text(SPRING), footer=footer)
            assert read(pdf) == [SPRING], footer
        layers = read_text_layers(io.BytesIO(articles.paper(articles.text(SPRING), footer="Page %d")), 1, 1, ())
        assert isinstance(layers, TextLayers)
        [layer] = layers.layers
        assert layer.page is not None
        assert layer.page.spans[-1].text == "Page 1"

    def test_what_else_stands_there_is_kept(self):
        pdf = articles.paper(articles.text(SPRING), header="Harbour report 2026", footer="Invoice 4711")
        assert read(pdf) == ["Harbour report 2026", SPRING, "Invoice 4711"]


def test_chinese_is_read_like_any_other_text():
    pdf = articles.paper(
        articles.chinese("港口年度报告", 20),
        articles.chinese("一、概述", 15),
        articles.chinese(SPRING_ZH),
        articles.chinese(ICE_ZH),
        articles.chinese("1. 在北码头再建一台起重机；"),
        articles.chinese("2. 修建通往车站的新路。"),
        articles.chinese("甲方：上海港务有限公司"),
        articles.chinese("乙方：宁波海运集团"),
        footer="%d",
    )
    assert read(pdf) == [
        "# 港口年度报告",
        "## 一、概述",
        SPRING_ZH,
        ICE_ZH,
        "1. 在北码头再建一台起重机；\n2. 修建通往车站的新路。",
        "甲方：上海港务有限公司",
        "乙方：宁波海运集团",
    ]
