"""The user of this terminal, as the audit log names them."""

import getpass


def cli_actor() -> str:
    """`cli:<user name>`."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container may run under a user id without a name
        return "cli"
