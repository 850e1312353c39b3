"""The stage runtime: long work on a leased row, with progress, a cancel check, a stall watch and artifacts.

A stage is claimed, works for as long as it takes without an open transaction, and settles. The token of its lease alone
decides who owns it. `run_handle.py` writes its progress to run state, `stage_run.py` is what the work is given,
`artifacts.py` stores what it makes, and `reconciler.py` repairs what a crash or a flushed Redis leaves behind.
`run_waits.py` lets requests wait for the end of a run.
`kernel/lease_renewer.py` keeps the lease while the work runs. See docs/explanation/stages.md.
"""
