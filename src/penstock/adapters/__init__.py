"""The outside world: one file, or one small package, per outside program.

An adapter implements a Protocol that the kernel or a room has written down, and passes its suite in
tests/conformance. What the program can do wrong ends here: its errors leave as errors of the Protocol's own file.
Only `wiring.py` builds adapters; everybody else is handed one.
"""
