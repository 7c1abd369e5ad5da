"""Ends a server script with its standard input, so that it never outlives the test that started it."""

import os
import sys
import threading


def end_with_input() -> None:
    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
