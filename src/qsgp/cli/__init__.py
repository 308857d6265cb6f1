"""The command line: `app` is what ``qsgp`` and ``python -m qsgp`` run."""

import sys
from typing import Any

try:
    from qsgp.cli.main import app
except ModuleNotFoundError as error:
    if error.name not in ("typer", "rich"):
        raise

    def app(**settings: Any) -> None:  # type: ignore[misc]
        """What the program says where the extra is not installed."""
        sys.exit("The command line needs typer, rich and pyarrow. Run pip install 'qsgp[cli,data]'.")


__all__ = ["app"]
