"""The tables of access."""

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make them."""
