"""ETL: a document becomes JSON.

`submit.py` takes a document in. `advance.py` runs its two stages with the tools of `documents/`: OCR, then
post-processing. `steer.py` cancels and tries again, `track.py` tells how far a task is, `reconcile.py` finds what a
crash or a flushed Redis has left behind, `remove.py` forgets. `rules.py` keeps what callers want made of documents.
`memory.py` knows what was made before, `review.py` keeps what people say about results, and `assess.py` tells how good
a rule is by it.

A task's row is written when it is made and when it ends; in between it lives in the run state (`runs.py`), and what
its stages made lies at keys that follow from its id (`papers.py`). docs/explanation/etl.md tells the whole story.
"""
