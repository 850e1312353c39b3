"""Rules as JSON files (ETL_RULES_DIR) with the fields of POST /rules. A rule without a name is named after its file."""

from itertools import islice
from pathlib import Path

import msgspec

from penstock.etl.domain import Mode, ReviewPolicy, RuleBody, Strategy
from penstock.etl.errors import BadRule
from penstock.kernel.json_object import JsonObject

MAX_FILES = 1000
MAX_FILE_BYTES = 1024 * 1024


class _RuleFile(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a rule file."""

    name: str = ""
    description: str = ""
    json_schema: JsonObject | None = None
    system_prompt: str | None = None
    postprocess_mode: Mode = Mode.LLM
    postprocess_strategy: Strategy | None = None
    options: JsonObject = msgspec.field(default_factory=dict)
    review: ReviewPolicy | None = None


def list_files(folder: Path) -> list[Path]:
    """The JSON files of a folder, by name; empty if the folder does not exist."""
    return sorted(islice((path for path in folder.glob("*.json") if path.is_file()), MAX_FILES))


def read_rule(path: Path) -> RuleBody:
    """The rule in a file, or `BadRule`."""
    try:
        rule_file = msgspec.json.decode(read_bounded(path), type=_RuleFile)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRule(reason=f"invalid rule file: {error}") from error
    return RuleBody(**{**msgspec.structs.asdict(rule_file), "name": rule_file.name.strip() or path.stem})


def read_bounded(path: Path) -> bytes:
    """The content of a file, or `BadRule` if it is too long or contains a NUL character."""
    with path.open("rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise BadRule(reason=f"the file is longer than {MAX_FILE_BYTES} bytes")
    if b"\\u0000" in raw:
        raise BadRule(reason="the file contains a NUL character, which the database cannot store")
    return raw
