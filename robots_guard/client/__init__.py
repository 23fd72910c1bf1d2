"""The Python API: ask the guard from your own code.

    permission    the answer to whether a URL may be requested
    gate          admits the requests of one client: judges, waits for a turn, counts it
    async_guard   the guard of a program that runs asyncio
    sync_guard    its twin, for any thread

The transports for httpx and aiohttp use the gate, too.
"""
