"""What is set about MinerU, as the reader is given it."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.kernel.json_object import JsonObject

MIB = 1024 * 1024
VERSION = 1  # of how results become pages; a new one makes earlier readings those of another reader


@dataclass(frozen=True, kw_only=True)
class MineruTerms:
    """The settings MINERU_*, and what ETL_* says of every document."""

    api_key: str = field(default="", repr=False)
    endpoint: str = "https://mineru.net/api/v4"
    protocol: str = "auto"
    poll_interval: float = 5.0
    timeout: float = 600.0
    source: str = "auto"
    source_url_seconds: float = 3600.0
    model_version: str = "pipeline"
    language: str = "ch"
    max_file_bytes: int = 200_000_000  # of what is sent as one file
    max_pages: int = 200  # of one file
    most_document_bytes: int = 512 * MIB  # ETL_MAX_FILE_BYTES
    most_document_pages: int = 5000  # ETL_MAX_PAGES
    most_result_bytes: int = 1024 * MIB  # of one zip; pictures make most of it

    @property
    def spoken(self) -> Literal["cloud", "selfhosted"]:
        """The protocol. Only the cloud's addresses end so."""
        if self.protocol == "auto":
            return "cloud" if self.address.endswith("/api/v4") else "selfhosted"
        return "cloud" if self.protocol == "cloud" else "selfhosted"

    @property
    def address(self) -> str:
        """The endpoint, to which paths are added."""
        return self.endpoint.rstrip("/")

    @property
    def identity(self) -> JsonObject:
        """What a reading depends on beside the document. How it was sent and split is left out."""
        options = {"language": self.language}
        if self.spoken == "cloud":
            options["model_version"] = self.model_version
        return {
            "reader": "mineru",
            "version": VERSION,
            "protocol": self.spoken,
            "endpoint": self.address,
            "options": options,
        }
