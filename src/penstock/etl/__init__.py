"""ETL: convert documents to JSON.

A user submits a file; the OCR stage turns it into markdown, and the post-processing stage turns that into JSON under
the user's schema. `submit.py` accepts a document and `upload.py` stores one that is sent along. `stages.py` runs the
two stages of a task, OCR and post-processing, with the providers of `documents/`; `stage_context.py` is what they are
given. `cancel.py` and `retry.py` change a task, `remove.py` deletes it, and `reconcile.py` repairs what a crash or a
flushed Redis leaves behind. `rules.py` manages the extraction rules, and `dry_run.py` tries one on a sample.
`stage_cache.py` is the cache of earlier stage results. `review.py` stores corrections of results, and `accuracy.py`
measures rules by them.

These verbs take a transaction; `api/actions.py` and `worker.py` open it. A task's row is written when it is submitted
and when it ends. In between its progress lives in run state (`run_state.py`), and its artifacts lie under keys derived
from its id (`artifacts.py`). See docs/explanation/etl.md.
"""
