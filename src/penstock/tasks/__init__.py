"""Tasks: work goes out and comes back.

A project has queues, and tasks in them or beside them. People plan tasks here (`edit.py`, `operate.py`); clients push
what they do (`push.py`, `progress.py`) and pull what was planned (`pull.py`): a pulled task is under a lease until its
holder pushes a final status, gives it back, or falls silent (`hand_back.py`, `lapse.py`). `report.py` counts.

Every verb but the pull itself takes the project's row first, works on values (`domain.py`), and lets `moves.py` write
what changed: the tasks, the end of a pull, the counts, and a line per task in the feed, in the order of commits.
"""
