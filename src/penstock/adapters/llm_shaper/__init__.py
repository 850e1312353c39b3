"""The post-processor `llm`: asks a model and checks its answer against the schema and the document.

shaper.py      the post-processor           strategies.py   how to ask about a document
session.py     questions, repair rounds, replies as checkpoints, usage
validation.py  checks answers and grounds values, in the sandbox
"""

from penstock.adapters.llm_shaper.shaper import LlmShaper
from penstock.adapters.llm_shaper.strategies import LlmShaperConfig
from penstock.adapters.llm_shaper.validation import PRELOAD

__all__ = ["PRELOAD", "LlmShaper", "LlmShaperConfig"]
