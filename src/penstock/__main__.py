"""`python -m penstock` is the `penstock` command."""

from penstock.cli.main import app

if __name__ == "__main__":
    app()
