"""A study: a store, a desk, and the post-processor `llm` with a model of the test's choice."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.llm_shaper import LlmShaper, LlmShaperConfig
from penstock.adapters.llm_shaper.validation import GroundFunction
from penstock.documents.chat_model import ChatModel
from penstock.documents.ocr.provider import Reading
from penstock.documents.pages import Page, write_page
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.local_reading import NotingDesk
from tests.fakes.grounding import ground_by_letters

PAGES_KEY = "users/1/etl_artifacts/2/3/pages-1.jsonl"
TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"Name": TEXT, "City": TEXT}, "required": ["Name"]}


@dataclass
class Study:
    """Where documents are asked about."""

    blobs: DiskBlobs
    sandbox: Sandbox
    scratch: Path
    desk: NotingDesk = field(default_factory=lambda: NotingDesk(folder="users/1/etl_artifacts/2/3/shapes/1/"))
    ground: GroundFunction = ground_by_letters
    terms: LlmShaperConfig = field(default_factory=LlmShaperConfig)

    def shaper(self, model: ChatModel) -> LlmShaper:
        return LlmShaper(model, self.blobs, self.sandbox, self.scratch, ground=self.ground, config=self.terms)

    async def shape(self, model: ChatModel, *pages: str, schema: Any = SCHEMA, **rule: Any) -> ExtractionResult:
        """What the model's answers become, about these pages and by such a rule."""
        lines = [write_page(Page(number=at, origin="text", markdown=text)) for at, text in enumerate(pages, 1)]
        await self.blobs.put(PAGES_KEY, b"".join(lines))
        reading = Reading(markdown_key="users/1/m.md", pages_key=PAGES_KEY, provider_task_id="t", page_count=len(pages))
        asked = ExtractionRule(json_schema=schema, **rule)
        return await self.shaper(model).shape("paper.pdf", reading, asked, self.desk)

    async def kept(self) -> list[str]:
        """The keys of what the desk's folder holds."""
        return [blob.key for blob in (await self.blobs.list(self.desk.folder)).blobs]

    def left_behind(self) -> list[Path]:
        """Files that should be gone."""
        return list(self.scratch.iterdir()) if self.scratch.exists() else []
