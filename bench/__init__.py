"""Benchmarks: each against a reference in the same run, in three interleaved rounds, as a ratio with its spread.

`make bench` runs all of them, `make bench ARGS="claims growth"` some. Results go to `bench/results/`. A benchmark is a
module with a `run()` that returns `Finding`s. A missed target is marked, and the run ends with status 1.
"""
