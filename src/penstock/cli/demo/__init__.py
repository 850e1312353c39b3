"""`penstock demo`: a guided run on sample data.

`tour.py` starts the server and runs the steps: `chain.py` is a chain of two jobs whose worker is killed, `tasks.py`
pulls and pushes a task, `documents.py` reads two invoices.
"""
