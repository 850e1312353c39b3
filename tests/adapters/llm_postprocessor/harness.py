"""A harness for the post-processor `llm`: a store, a stage context, and a model chosen by the test."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.llm_postprocessor import LlmPostProcessor, LlmPostProcessorConfig
from penstock.adapters.llm_postprocessor.validation import GroundFunction
from penstock.documents.chat_model import ChatModel
from penstock.documents.ocr.provider import Reading
from penstock.documents.pages import Page, write_page
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.local_reader_harness import RecordingContext
from tests.fakes.grounding import ground_by_letters

PAGES_KEY = "users/1/etl_artifacts/2/3/pages-1.jsonl"
TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"Name": TEXT, "City": TEXT}, "required": ["Name"]}


@dataclass
class LlmHarness:
    """A store, a sandbox and a stage context."""

    blobs: DiskBlobs
    sandbox: Sandbox
    scratch: Path
    context: RecordingContext = field(
        default_factory=lambda: RecordingContext(folder="users/1/etl_artifacts/2/3/shapes/1/")
    )
    ground: GroundFunction = ground_by_letters
    terms: LlmPostProcessorConfig = field(default_factory=LlmPostProcessorConfig)

    def post_processor(self, model: ChatModel) -> LlmPostProcessor:
        return LlmPostProcessor(model, self.blobs, self.sandbox, self.scratch, ground=self.ground, config=self.terms)

    async def extract(self, model: ChatModel, *pages: str, schema: Any = SCHEMA, **rule: Any) -> ExtractionResult:
        """The result for these pages and this rule."""
        lines = [write_page(Page(number=at, origin="text", markdown=text)) for at, text in enumerate(pages, 1)]
        await self.blobs.put(PAGES_KEY, b"".join(lines))
        reading = Reading(markdown_key="users/1/m.md", pages_key=PAGES_KEY, provider_task_id="t", page_count=len(pages))
        asked = ExtractionRule(json_schema=schema, **rule)
        return await self.post_processor(model).extract("paper.pdf", reading, asked, self.context)

    async def kept(self) -> list[str]:
        """The keys in the folder of the stage."""
        return [blob.key for blob in (await self.blobs.list(self.context.folder)).blobs]

    def left_behind(self) -> list[Path]:
        """Scratch files, of which none should be left."""
        return list(self.scratch.iterdir()) if self.scratch.exists() else []
