"""Documents of the older store, as `mongoexport` prints them: relaxed or canonical, lines or an array."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Document = Mapping[str, Any]
ENCRYPTION_KEY = "0123456789abcdef" * 4
PROJECT_OID, OTHER_OID = "65a0000000000000000000a1", "65a0000000000000000000a2"
BORN, CHANGED = "2024-01-02T03:04:05.678Z", "2024-02-03T04:05:06Z"
PULLED, RELEASED = "2024-01-05T00:00:00Z", "2024-01-05T00:10:00Z"


def at(text: str) -> dict[str, str]:
    return {"$date": text}


def oid(text: str) -> dict[str, str]:
    return {"$oid": text}


TIMES = {"createdAt": at(BORN), "updatedAt": at(CHANGED), "__v": 0}
PROJECTS: list[Document] = [
    {
        "_id": oid(PROJECT_OID),
        "projectId": "docs/抓取",
        "name": "抓取",
        "clientInfo": {"username": "anna", "hostname": "box", "project_path": None},
        "gitInfo": {"repository": "r", "branch": "main"},
        "lastTaskAt": at(CHANGED),
        **TIMES,
    },
    {"_id": oid(OTHER_OID), "projectId": "empty", "name": "Empty", **TIMES},
]
SPARE: Document = {
    "name": "n",
    "prompt": "p",
    "spec_file": [],
    "status": "pending",
    "report": None,
    "messages": [],
    "logs": [],
}
OWN_TIMES = {"created_at": at(BORN), "updated_at": at(CHANGED)}
QUEUE_TASKS: list[Document] = [
    {
        **SPARE,
        "id": "pushed",
        "name": "完成",
        "spec_file": ["a.md"],
        "status": "done",
        "report": "r.md",
        "tags": ["Fr"],
        "messages": [{"role": "USER", "content": "Go", "sessionId": "s1", "createdAt": at(BORN)}],
        "logs": [{"content": "began", "createdAt": at(BORN)}],
        **OWN_TIMES,
    },
    {**SPARE, "id": "older"},  # from before there were pulls: no times, no source
    {**SPARE, "id": "planned", "source": "server", "priority": "high", "server_modified_at": at(CHANGED), **OWN_TIMES},
    {
        **SPARE,
        "id": "held",
        "source": "server",
        "pulled_at": at(PULLED),
        "pulled_by": "bert",
        "pull_history": [
            {"pulled_at": at(BORN), "pulled_by": "anna", "released_at": at(RELEASED), "released_by": "system-timeout"},
            {"pulled_at": at(PULLED), "pulled_by": "bert", "released_at": None, "released_by": None},
        ],
        **OWN_TIMES,
    },
    {**SPARE, "id": "returned", "source": "client", "status": "done", "pulled_at": at(PULLED), "pulled_by": "bert"},
    {**SPARE, "id": "gone", "source": "server", "deleted_at": at(CHANGED), **OWN_TIMES},
]
QUEUES: list[Document] = [
    {
        "_id": oid("65a0000000000000000000b1"),
        "projectId": oid(PROJECT_OID),
        "queueId": "q/1",
        "name": "First",
        "meta": {"retries": 3, "at": at(BORN)},
        "tasks": QUEUE_TASKS,
        "lastTaskAt": at(CHANGED),
        "last_reset_at": at(BORN),
        "last_operation": "reset",
        **TIMES,
    }
]
TASKS: list[Document] = [
    {"_id": oid("65a0000000000000000000c1"), "projectId": oid(PROJECT_OID), "taskId": "alone", **SPARE, **OWN_TIMES}
]
METADATA: list[Document] = [
    {
        "_id": oid("65a0000000000000000000d1"),
        "projectId": "docs/抓取",
        "customTitle": "Title",
        "notes": None,
        "tags": ["X", " x "],
        **TIMES,
    },
    {"_id": oid("65a0000000000000000000d2"), "projectId": "deleted long ago", "customTitle": "T", "tags": [], **TIMES},
]
USERS: list[Document] = [{"_id": oid("65a0000000000000000000e1"), "username": "root", "password": "$2b$10$x", **TIMES}]
STATISTICS: list[Document] = [
    {
        "_id": oid("65a0000000000000000000f1"),
        "date": "2024-01-02",
        "hour": 3,
        "projectId": "docs/抓取",
        "queueId": "q/1",
        "taskId": "pushed",
        "executionResult": "success",
        **TIMES,
    }
]
SECRETS = {"of anna": "sk-" + "a" * 32, "off": "sk-" + "b" * 32}
PROJECT = "/projects/docs%2F%E6%8A%93%E5%8F%96"


def encrypted(secret: str, key: bytes) -> str:
    """A key as the older store keeps it."""
    iv, padder = bytes(range(16)), padding.PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES256(key), modes.CBC(iv)).encryptor()
    cipher = encryptor.update(padder.update(secret.encode()) + padder.finalize()) + encryptor.finalize()
    return f"{iv.hex()}:{cipher.hex()}"


KEYS: list[Document] = [
    {"name": name, "key": encrypted(secret, bytes.fromhex(ENCRYPTION_KEY)), "projectId": project, "isActive": on}
    for (name, secret), project, on in zip(SECRETS.items(), ("docs/抓取", None), (True, False), strict=True)
]
EXPORT = {
    "a-queues.json": QUEUES,  # alphabetical order is not the order of the import
    "b-projects.json": PROJECTS,
    "c-tasks.json": TASKS,
    "d-meta.json": METADATA,
    "e-keys.json": KEYS,
    "f-users.json": USERS,
    "g-stats.json": STATISTICS,
}


def canonical(value: Any) -> Any:
    """The value in canonical Extended JSON."""
    if isinstance(value, Mapping):
        if "$date" in value:
            moment = datetime.fromisoformat(value["$date"]).astimezone(UTC)
            return {"$date": {"$numberLong": str(round(moment.timestamp() * 1000))}}
        return {name: canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [canonical(one) for one in value]
    return {"$numberInt": str(value)} if type(value) is int else value


def as_lines(documents: Sequence[Any]) -> str:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in documents)


def as_array(documents: Sequence[Any]) -> str:
    return "[" + ",".join(json.dumps(one, ensure_ascii=False) for one in documents) + "]\n"


def as_pretty_array(documents: Sequence[Any]) -> str:
    return json.dumps(documents, ensure_ascii=False, indent="\t")


def write(
    folder: Path, export: Mapping[str, Sequence[Document]], form: Callable[[Sequence[Any]], str] = as_lines
) -> list[Path]:
    for name, documents in export.items():
        (folder / name).write_text(form(documents), encoding="utf-8")
    return [folder / name for name in export]
