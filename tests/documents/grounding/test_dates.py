"""Dates are found by date, in every notation."""

import pytest

from tests.documents.grounding.ground import is_grounded


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-12",
        "dated 12 March 2026",
        "March 12th, 2026",
        "the 12th day of March 2026",
        "03/12/2026",
        "12/03/2026",
        "12.03.2026",
        "12.3.26",
        "12-Mar-26",
        "12. März 2026",
        "le 12 mars 2026",
        "2026年3月12日",
        "２０２６年３月１２日",
        "二〇二六年三月十二日",
        "20260312",
        "10–12 March 2026",
    ],
)
def test_a_date_is_found_in_every_notation(text: str):
    assert is_grounded("2026-03-12", f"on {text}.")


@pytest.mark.parametrize(
    "text", ["2026-04-12", "12 March 2025", "13 March 2026", "03.12.2026", "March 2026", "12 March"]
)
def test_another_date_is_not_found(text: str):
    assert not is_grounded("2026-03-12", text)


@pytest.mark.parametrize("text", ["March 2026", "03/2026", "2026年3月", "Mär. 2026", "2026-03"])
def test_a_month_is_found_as_a_month_and_as_its_first_day(text: str):
    assert is_grounded("2026-03", f"since {text}")
    assert is_grounded("2026-03-01", f"since {text}")
    assert not is_grounded("2026-04", f"since {text}")


@pytest.mark.parametrize("text", ["12.03.2026 14:05", "12 March 2026 at 2:05 pm", "2026年3月12日14时05分"])
def test_a_date_time_needs_its_time_on_the_page(text: str):
    assert is_grounded("2026-03-12T14:05:00Z", text)
    assert not is_grounded("2026-03-12T15:05:00Z", text)


def test_a_date_time_at_midnight_is_a_date():
    assert is_grounded("2026-03-12T00:00:00", "12 March 2026")


def test_what_only_looks_like_a_month_may_be_an_identifier():
    assert is_grounded("2026-99", "Invoice 2026-99")
