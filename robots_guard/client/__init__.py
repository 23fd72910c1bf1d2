"""The Python API: ask the guard from your own code.

    gate          admits the requests of one client: judges, waits for a turn, counts it
    async_guard   the guard of a program that runs asyncio, and its answers
    sync_guard    its twin, for any thread

The transports for httpx and aiohttp use the gate, too.
"""
