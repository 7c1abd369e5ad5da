"""The module `conftest` of these tests, which is not in the archive. Their clients are aioca and p4p."""

import multiprocessing
import os
import random
import string
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from softioc import builder

TIMEOUT = 30
"""Seconds that a test waits for a message."""

WAVEFORM_LENGTH = 20
ADDRESS = ("localhost", 2345)

in_records = [
    builder.aIn,
    builder.boolIn,
    builder.longIn,
    builder.int64In,
    builder.mbbIn,
    builder.stringIn,
    builder.WaveformIn,
    builder.longStringIn,
]


def requires_cothread(test: Any) -> Any:
    """These tests use p4p; those that do use cothread are left out."""
    return test


def create_random_prefix() -> str:
    """A prefix that no other test has."""
    return "".join(random.choice(string.ascii_uppercase) for _ in range(12))


def log(*parts: object) -> None:
    """A line with the time and the process."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {os.getpid()} {' '.join(map(str, parts))}\n")


def select_and_recv(connection: Connection, expected: str | None = None) -> Any:
    """The next message of the other process."""
    if not connection.poll(TIMEOUT):
        pytest.fail(f"no message within {TIMEOUT} s, expected {expected}")
    message = connection.recv()
    if expected is not None:
        assert message == expected, f"the message is {message!r}, expected {expected!r}"
    return message


def get_multiprocessing_context() -> Any:
    """Processes that have none of the threads of this one."""
    return multiprocessing.get_context("forkserver")


def aioca_cleanup() -> None:
    """Closes the channels of aioca."""
    from aioca import purge_channel_caches

    purge_channel_caches()


@pytest.fixture
def clear_records() -> Iterator[None]:
    """No records at the start of the test."""
    builder.ClearRecords()
    yield


@pytest.fixture(autouse=True)
def own_records() -> Iterator[None]:
    """Every test begins without records and without a device name."""
    builder.ClearRecords()
    builder.SetSimpleRecordNames(None, ":")
    yield
