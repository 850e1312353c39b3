"""Tests of the `penstock etl` commands, and the script that drew the demo's samples."""
