"""Settings of the MinerU reader."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.kernel.json_object import JsonObject

MIB = 1024 * 1024
VERSION = 1  # of the conversion of results to pages; part of the reader's identity, so a new one invalidates caches


@dataclass(frozen=True, kw_only=True)
class MineruConfig:
    """The settings MINERU_*, and the ETL_* limits for every document."""

    api_key: str = field(default="", repr=False)
    endpoint: str = "https://mineru.net/api/v4"
    protocol: str = "auto"
    poll_interval: float = 5.0
    timeout: float = 600.0
    source: str = "auto"  # a signed URL if the blob store can sign one (S3), else an upload (disk)
    source_url_seconds: float = 3600.0
    model_version: str = "pipeline"
    language: str = "ch"
    max_file_bytes: int = 200_000_000  # of one submitted file
    max_pages: int = 200  # of one file
    max_document_bytes: int = 512 * MIB  # ETL_MAX_FILE_BYTES
    max_document_pages: int = 5000  # ETL_MAX_PAGES
    max_result_bytes: int = 1024 * MIB  # of one zip; mostly images

    @property
    def resolved_protocol(self) -> Literal["cloud", "selfhosted"]:
        """The protocol; `auto` decides by the URL, since only the cloud's ends in /api/v4."""
        if self.protocol == "auto":
            return "cloud" if self.address.endswith("/api/v4") else "selfhosted"
        return "cloud" if self.protocol == "cloud" else "selfhosted"

    @property
    def address(self) -> str:
        """The base URL."""
        return self.endpoint.rstrip("/")

    @property
    def identity(self) -> JsonObject:
        """What a reading depends on besides the document. How it was submitted and split does not matter."""
        options = {"language": self.language}
        if self.resolved_protocol == "cloud":
            options["model_version"] = self.model_version
        return {
            "reader": "mineru",
            "version": VERSION,
            "protocol": self.resolved_protocol,
            "endpoint": self.address,
            "options": options,
        }
