"""The one function of this module that programs call."""

__all__ = ["callbackSetQueueSize"]


def callbackSetQueueSize(size: int) -> int:  # noqa: N802
    """Has no effect: there is no queue of callbacks that could overflow. Returns 0."""
    if int(size) <= 0:
        raise ValueError(f"the size of a queue is {size}: expected a positive number")
    return 0
