"""The value next to each label of a schema, as `documents/extract/fields` finds it.

Pages that contain no label of the schema are skipped. A section or table that is open before a skipped page does not
continue after it.
"""

from dataclasses import dataclass, field
from itertools import chain

from penstock.documents.extract.fields.arrays import TooManyArrayValues
from penstock.documents.extract.fields.candidates import Candidate
from penstock.documents.extract.fields.collect import FieldCollector
from penstock.documents.extract.fields.label_keys import label_key
from penstock.documents.extract.fields.schema_tree import LeafNode, Node
from penstock.documents.extract.fields.sections import SectionTracker
from penstock.documents.grounding.page_text import PageText
from penstock.documents.pages import Page

MAX_LABELS = 1000  # a schema with more labels is read on every page
KEY_CHUNK = 60  # characters per label key; longer text has none


@dataclass(kw_only=True)
class FieldLookup:
    """The values next to the labels of a schema, page by page; empty without a schema or beyond the limits."""

    collector: FieldCollector | None
    keys: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, tree: Node | None) -> "FieldLookup":
        """A lookup for a schema, before the first page."""
        collector = FieldCollector.of(tree) if tree is not None else None
        if collector is None or not collector.label_index.leaves_by_key:
            return cls(collector=None)
        label_index = collector.label_index
        return cls(
            collector=collector,
            keys=tuple(chain(label_index.leaves_by_key, label_index.objects_by_key, label_index.arrays_by_key)),
        )

    def add_page(self, page: Page, text: PageText) -> None:
        """Collect the candidates of a page."""
        if self.collector is None:
            return
        if not self._may_contain_labels(text):
            self.collector.sections = SectionTracker(label_index=self.collector.label_index)
            self.collector.arrays.close_table()
            return
        try:
            self.collector.read(page)
        except TooManyArrayValues:
            self.collector = None

    def _may_contain_labels(self, text: PageText) -> bool:
        if len(self.keys) > MAX_LABELS:
            return True
        tokens = text.joined_tokens
        keys = "".join(label_key(tokens[at : at + KEY_CHUNK]) for at in range(0, len(tokens), KEY_CHUNK))
        return any(key in keys for key in self.keys)

    def candidate(self, leaf: LeafNode | None) -> Candidate | None:
        """The value next to the label of a leaf."""
        return self.collector.candidates.best(leaf) if self.collector is not None and leaf is not None else None

    def ambiguous(self) -> frozenset[LeafNode]:
        """The leaves whose labels have different values next to them."""
        return frozenset(self.collector.candidates.ambiguous()) if self.collector is not None else frozenset()
