"""The post-processor `llm`: asks a model and checks its answer against the schema and the document.

post_processor.py      the post-processor           strategies.py   how to ask about a document
session.py     questions, repair rounds, replies as checkpoints, usage
validation.py  checks answers and grounds values, in the sandbox
"""

from penstock.adapters.llm_postprocessor.postprocessor import LlmPostProcessor
from penstock.adapters.llm_postprocessor.strategies import LlmPostProcessorConfig
from penstock.adapters.llm_postprocessor.validation import PRELOAD

__all__ = ["PRELOAD", "LlmPostProcessor", "LlmPostProcessorConfig"]
