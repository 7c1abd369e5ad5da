"""What these tests use of cothread, over aioca and threads."""

import select
import threading
import time

POLLIN = select.POLLIN
Sleep = time.sleep


def poll_list(files: list[tuple[int, int]], timeout: float) -> list[int]:
    """Waits until one of the files can be read."""
    return select.select([file for file, _ in files], [], [], timeout)[0]


class Event:
    """Something that happens once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def Signal(self) -> None:  # noqa: N802
        """It has happened."""
        self._event.set()

    def Wait(self) -> None:  # noqa: N802
        """Waits for it."""
        assert self._event.wait(60)
