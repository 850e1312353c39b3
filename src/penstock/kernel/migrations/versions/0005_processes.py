"""The tables of processes."""

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make them."""
