"""Who sits at the terminal, as the audit log names them."""

import getpass


def actor() -> str:
    """Their name on this machine, if they have one."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # in a container a user may have a number and no name
        return "cli"
