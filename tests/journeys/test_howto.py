"""What the how-to shows runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.checks import tree
from tests.journeys.command import environment


def test_the_job_in_the_howto_runs_as_it_is_shown(tmp_path: Path):
    page = (tree.ROOT / "docs" / "howto" / "write-a-job.md").read_text(encoding="utf-8")
    [script] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "job.py").write_text(script, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "job.py")]
    ended = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.split("\n") == ["done", "HELLO YOU", ""], ended.stderr
