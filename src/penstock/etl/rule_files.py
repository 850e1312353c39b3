"""Rules as files: a folder of JSON files, each with what the body of POST /rules has.

Without a name a rule is called like its file.
"""

from itertools import islice
from pathlib import Path

import msgspec

from penstock.etl.domain import Mode, RuleBody, Strategy
from penstock.etl.errors import BadRule
from penstock.kernel.json_object import JsonObject

MOST_FILES = 1000
MOST_FILE_BYTES = 1024 * 1024


class _RuleFile(msgspec.Struct, forbid_unknown_fields=True):
    """What a file may say."""

    name: str = ""
    description: str = ""
    json_schema: JsonObject | None = None
    system_prompt: str | None = None
    postprocess_mode: Mode = Mode.LLM
    postprocess_strategy: Strategy | None = None
    options: JsonObject = msgspec.field(default_factory=dict)


def list_files(folder: Path) -> list[Path]:
    """The files that may be rules, by name; none when there is no such folder."""
    return sorted(islice((path for path in folder.glob("*.json") if path.is_file()), MOST_FILES))


def read_rule(path: Path) -> RuleBody:
    """What a file says, or `BadRule`."""
    try:
        said = msgspec.json.decode(read_bounded(path), type=_RuleFile)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRule(reason=f"the file does not fit: {error}") from error
    return RuleBody(**{**msgspec.structs.asdict(said), "name": said.name.strip() or path.stem})


def read_bounded(path: Path) -> bytes:
    """The JSON in a file, or `BadRule` when it is longer than any rule, or holds what cannot be kept."""
    with path.open("rb") as file:
        raw = file.read(MOST_FILE_BYTES + 1)
    if len(raw) > MOST_FILE_BYTES:
        raise BadRule(reason=f"the file is longer than {MOST_FILE_BYTES} bytes")
    if b"\\u0000" in raw:
        raise BadRule(reason="the file holds a NUL character, which no database keeps")
    return raw
