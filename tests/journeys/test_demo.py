"""The first thing a newcomer runs."""

import re
import socket

from tests.journeys.command import free_port, run


def test_the_demo_survives_the_death_of_its_worker_and_sums_up():
    ended = run("demo", "--exit", "--port", str(free_port()))
    assert ended.returncode == 0, ended.stderr
    assert "killed -9" in ended.stdout
    assert "12 pages, 489 words" in ended.stdout
    words = ended.stdout.split()
    assert words[words.index("claim") :][:7] == ["claim", "→", "expire", "→", "claim", "→", "finish."]
    assert "pulled by ada, pushed by ada" in ended.stdout
    assert "created pending → pushed running → pushed done" in ended.stdout
    assert "| Laid paper, A4 | 12 | 18.50 | 222.00 |" in ended.stdout
    assert "Seller: Riverside Mill" in ended.stdout
    assert numbers_and_totals(ended.stdout) == {
        ("number", "MS-2026-0117", "page 1, top left"),
        ("total", "387.2", "page 1, middle right"),
        ("number", "RM-88213", "page 1, top left"),
        ("total", "256", "page 1, middle left"),
    }


def numbers_and_totals(shown: str) -> set[tuple[str, str, str]]:
    """What was read from the invoices, each with where it stands."""
    return set(re.findall(r"^ +(number|total) +(\S+) +← (page \d, \w+ \w+) \(", shown, re.MULTILINE))


def test_a_demo_whose_port_is_taken_says_so_and_claims_nothing():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("demo", "--exit", "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "Cannot listen on" in ended.stderr
    assert "A server is up" not in ended.stdout
