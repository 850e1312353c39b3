"""Tests of authentication, authorization and keys."""
