"""The first thing a newcomer runs."""

from tests.journeys.command import free_port, run


def test_the_demo_survives_the_death_of_its_worker_and_sums_up():
    ended = run("demo", "--exit", "--port", str(free_port()))
    assert ended.returncode == 0, ended.stderr
    assert "killed -9" in ended.stdout
    assert "12 pages, 489 words" in ended.stdout
    words = ended.stdout.split()
    assert words[words.index("claim") :][:7] == ["claim", "→", "expire", "→", "claim", "→", "finish."]
