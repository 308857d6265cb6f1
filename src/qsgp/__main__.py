"""``python -m qsgp``: the command line where the package is used from its source tree."""

from qsgp.cli import app

if __name__ == "__main__":
    app(prog_name="qsgp")
