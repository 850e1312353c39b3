"""The post-processor `llm`: a model is asked, its answer is checked against the schema and against the document.

shaper.py      the post-processor         strategies.py  how a document is asked about
asker.py       questions, repairs, what is kept of them, what they cost
text.py        the words of a document    checking.py    answers and values, in the sandbox
"""

from penstock.adapters.llm_shaper.checking import PRELOAD
from penstock.adapters.llm_shaper.shaper import LlmShaper
from penstock.adapters.llm_shaper.strategies import AskingTerms

__all__ = ["PRELOAD", "AskingTerms", "LlmShaper"]
