"""Adapters to external programs: one file, or one small package, each.

An adapter implements a Protocol of the kernel or of a module and passes its suite in tests/conformance. It maps the
errors of the external program to those of the Protocol. Only `wiring/` builds adapters; other code receives them.
"""
