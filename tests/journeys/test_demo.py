"""The first thing a newcomer runs."""

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


def test_a_demo_whose_port_is_taken_says_so_and_claims_nothing():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("demo", "--exit", "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "cannot be listened on" in ended.stderr
    assert "A server is up" not in ended.stdout
