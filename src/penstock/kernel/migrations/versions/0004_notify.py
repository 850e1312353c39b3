"""The tables of notify."""

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make them."""
