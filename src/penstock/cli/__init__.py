"""The `penstock` command.

`main.py` defines the command and its options. It imports nothing heavy, so that `--help`, `--version` and shell
completion answer at once; each command imports what it needs when it runs. The groups `keys`, `tasks` and `etl` are
modules of their own, imported on first use.
"""
