"""`python -m fodo.compat.aioca --version` prints the version of aioca with these functions."""

from __future__ import annotations

import argparse

from . import __version__


def main() -> None:
    """Reads the arguments of this process."""
    parser = argparse.ArgumentParser(prog="aioca")
    parser.add_argument("-v", "--version", action="version", version=__version__)
    parser.parse_args()


if __name__ == "__main__":
    main()
