"""What the process tells, and what it never tells."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.kernel.logs import RequestLine, request_id, set_up_logs, trace_id

log = logging.getLogger("penstock.test_logs")
LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING penstock\.test_logs: 3 jobs wait queue=etl why=\"no worker\""


def fail(words: str) -> None:
    raise ValueError(words)


class Telling:
    """Logs set up for one test."""

    def __init__(self, style: str, level: str = "INFO") -> None:
        self.out = io.StringIO()
        self.handler = set_up_logs(style=style, level=level, stream=self.out)

    @property
    def text(self) -> str:
        return self.out.getvalue()

    @property
    def line(self) -> str:
        [line] = self.text.splitlines()
        return line

    @property
    def object(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.line)
        return told


@pytest.fixture
def telling(request: pytest.FixtureRequest) -> Iterator[Telling]:
    """Logs in one style, and everything as it was afterwards."""
    root, flags = logging.getLogger(), (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    level, levels = (
        root.level,
        {name: logging.getLogger(name).level for name in ("alembic", "aiohttp.access", "asyncio")},
    )
    made = Telling(getattr(request, "param", "text"))
    yield made
    root.removeHandler(made.handler)
    root.setLevel(level)
    for name, least in levels.items():
        logging.getLogger(name).setLevel(least)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags


both = pytest.mark.parametrize("telling", ["text", "json"], indirect=True)
as_json = pytest.mark.parametrize("telling", ["json"], indirect=True)


class TestText:
    def test_a_line_has_its_time_level_name_words_and_fields(self, telling: Telling):
        log.warning("%d jobs wait", 3, extra={"queue": "etl", "why": "no worker"})
        assert re.fullmatch(LINE, telling.line)

    def test_a_line_names_its_request(self, telling: Telling):
        token = request_id.set("req_7")
        log.info("hello")
        request_id.reset(token)
        assert telling.line.endswith("hello [req_7]")

    @pytest.mark.parametrize(
        "break_", ["\n", "\r", "\r\n", "\x0b", "\x1b[2J", "\x85", "\u2028", "\u202e", "\0", "\x7f"]
    )
    def test_nobody_can_write_a_line_of_ours(self, telling: Telling, break_: str):
        log.info("hello %s", f"x{break_}2026-01-01T00:00:00.000Z ERROR forged", extra={"field": f"y{break_}z"})
        assert len(telling.text.splitlines()) == 1
        assert telling.line.isprintable()

    def test_a_trace_is_set_in_so_that_it_cannot_pass_for_lines(self, telling: Telling):
        try:
            fail("x\n2026-01-01T00:00:00.000Z ERROR forged\x1b")
        except ValueError:
            log.exception("failed")
        first, *rest = telling.text.split("\n")[:-1]
        assert first.endswith("failed")
        assert any("ValueError" in line for line in rest)
        assert all(line.startswith("  ") for line in rest)
        assert "\x1b" not in telling.text


class TestJson:
    @as_json
    def test_a_line_is_an_object(self, telling: Telling):
        tokens = request_id.set("req_7"), trace_id.set("abc")
        log.warning("%d jobs wait", 3, extra={"queue": "etl", "count": 3, "share": 0.5, "well": True, "none": None})
        request_id.reset(tokens[0])
        trace_id.reset(tokens[1])
        told = telling.object
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("time"))
        assert told == {
            "level": "WARNING",
            "logger": "penstock.test_logs",
            "message": "3 jobs wait",
            "request_id": "req_7",
            "trace_id": "abc",
            "queue": "etl",
            "count": 3,
            "share": 0.5,
            "well": True,
            "none": None,
        }

    @as_json
    def test_a_trace_stays_on_the_line(self, telling: Telling):
        try:
            fail("odd")
        except ValueError:
            log.exception("failed")
        assert "ValueError: odd" in telling.object["error"]

    @as_json
    def test_a_line_about_a_request_names_the_request_it_is_about(self, telling: Telling):
        logging.getLogger("penstock.access").handle(
            RequestLine("GET /x", {"status": 200, "ms": 1.5}, request_id="req_9", at=1767225600.25)
        )
        assert telling.object == {
            "time": "2026-01-01T00:00:00.250Z",
            "level": "INFO",
            "logger": "penstock.access",
            "message": "GET /x",
            "request_id": "req_9",
            "status": 200,
            "ms": 1.5,
        }


class TestSecrets:
    @both
    def test_a_secret_shows_nowhere(self, telling: Telling):
        try:
            try:
                fail("postgresql://me:hunter2@db/x")
            except ValueError as cause:
                raise RuntimeError("password=hunter2") from cause
        except RuntimeError:
            log.exception("token=%s", "hunter2", extra={"api_key": "hunter2", "where": "?secret=hunter2", "n": 1})
        assert "hunter2" not in telling.text
        assert "***" in telling.text

    @both
    def test_people_are_masked(self, telling: Telling):
        log.info("%s called from 13812345678", "john.doe@example.com")
        assert "j***@example.com called from 138****5678" in telling.text


class Unshowable:
    """Whose every look is refused."""

    def __str__(self) -> str:
        raise RuntimeError("not to be shown")

    __repr__ = __str__


class TestNeverInTheWay:
    @both
    def test_what_cannot_be_shown_leaves_a_line_that_says_so(self, telling: Telling):
        log.info("hello", extra={"odd": Unshowable()})
        assert re.search(r"cannot format a log line of \S+ \(\S+:\d+\): RuntimeError", telling.line)

    @both
    def test_values_that_do_not_fit_lose_no_line(self, telling: Telling):
        # Not by the logger: pytest's own handler would raise.
        telling.handler.handle(log.makeRecord(log.name, logging.INFO, __file__, 1, "%d jobs", ("three",), None))
        assert "%d jobs (its arguments do not match)" in telling.line

    @both
    def test_half_characters_are_shown_as_what_they_are(self, telling: Telling):
        log.info("half \ud83d")
        assert "\\ud83d" in telling.text.replace("\\\\", "\\")

    @both
    def test_lines_have_a_length(self, telling: Telling):
        log.info("x" * 1_000_000, extra={f"field{number}": "y" * 10_000 for number in range(100)})
        assert "1000000 characters" in telling.text
        assert len(telling.text) < 20_000

    @both
    def test_traces_keep_their_beginning_and_their_end(self, telling: Telling):
        try:
            fail("begin" + "x" * 100_000 + "end")
        except ValueError:
            log.exception("failed")
        assert "Traceback" in telling.text
        assert "end" in telling.text
        assert len(telling.text) < 20_000


class TestSetUp:
    def test_called_again_it_replaces_what_it_set_up(self, telling: Telling):
        again = Telling("text")
        log.info("hello")
        logging.getLogger().removeHandler(again.handler)
        assert telling.text == ""
        assert "hello" in again.text

    def test_the_level_holds_for_everyone(self, telling: Telling):
        quiet = Telling("text", "WARNING")
        log.info("hello")
        logging.getLogger("sqlalchemy.engine").info("hello")
        assert quiet.text == ""
        logging.getLogger().removeHandler(quiet.handler)

    def test_libraries_that_chatter_are_heard_when_they_warn(self, telling: Telling):
        logging.getLogger("alembic").info("step")
        assert telling.text == ""
        logging.getLogger("alembic").warning("odd step")
        assert "odd step" in telling.text
