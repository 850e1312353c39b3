"""The command `penstock`: one file per command group."""
