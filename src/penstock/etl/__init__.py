"""ETL: convert documents to JSON.

`submit.py` accepts a document and `upload.py` stores one that is sent along. `advance.py` runs the two stages of a
task, OCR and post-processing, with the providers of `documents/`. `cancel.py` and `retry.py` change a task,
`task_status.py` reads its progress, `remove.py` deletes it, and `reconcile.py` repairs what a crash or a flushed Redis
leaves behind. `rules.py` manages the extraction rules, and `dry_run.py` tries one on a sample. `memory.py` is the cache
of earlier stage results. `review.py` stores corrections of results, and `accuracy.py` measures rules by them.

A task's row is written when it is submitted and when it ends. In between its progress lives in the run state
(`runs.py`), and its artifacts lie under keys derived from its id (`papers.py`). See docs/explanation/etl.md.
"""
