"""The request to a time-stamping authority (RFC 3161)."""

from __future__ import annotations

import asyncio

import aiohttp

from robots_guard.errors import SettingsError

TIMEOUT = 30.0  # seconds for the response of an authority
LARGEST = 1024 * 1024  # bytes of a response
_HEADERS = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}


def response_of(url: str, query: bytes) -> bytes:
    """Return the response of an authority to a query (RFC 3161 section 3.4). Raises SettingsError."""
    return asyncio.run(_ask(url, query))


async def _ask(url: str, query: bytes) -> bytes:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            # RFC 3161 has no redirects, and a client would turn the query into a GET
            session.post(url, data=query, headers=_HEADERS, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise SettingsError(
                    f"--tsa {url!r} answers {response.status}: name the URL of a time-stamping authority"
                )
            return await _whole_of(response)
    except TimeoutError as error:
        raise SettingsError(
            f"--tsa {url!r} does not answer within {TIMEOUT:.0f} s: try again later"
        ) from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        why = str(error) or type(error).__name__
        raise SettingsError(
            f"--tsa {url!r} cannot be used ({why}): name the URL of a time-stamping authority"
        ) from error


async def _whole_of(response: aiohttp.ClientResponse) -> bytes:
    """The body of a response, which may come in parts. Raises ValueError if it is too long."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > LARGEST:
            raise ValueError(f"its response is larger than {LARGEST // 1024} KiB")
    return bytes(body)
