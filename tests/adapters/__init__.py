"""Tests of single adapters, beyond the conformance suite of their Protocol."""
