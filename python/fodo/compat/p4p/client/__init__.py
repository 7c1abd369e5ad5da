"""Clients: `thread` for programs with threads, `asyncio` for event loops, `raw` for callbacks."""
