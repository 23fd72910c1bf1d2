"""A decision service that is asked by lines, as a program: for tests of what all protocols share.

A URL       -> admitted ID NEEDS_RESPONSE | refused STATUS
respond ID  -> passed | refused STATUS
worker      -> the number of the worker

python line_service.py serve --envoy unix:PATH ...
"""

from __future__ import annotations

import asyncio
import sys

from support.wires import wire

from robots_guard.app.cli.main import main
from robots_guard.decisions.response import ResponseHead
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.origin import split_url
from robots_guard.serve.service import STARTS, Running, Server


async def start(running: Running) -> Server:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write((await answer(running, line.decode().split()) + "\n").encode())
        writer.close()

    running.listener.setblocking(False)
    return await asyncio.start_server(converse, sock=running.listener)


async def answer(running: Running, words: list[str]) -> str:
    if words == ["worker"]:
        return str(running.number)
    if words[0] == "respond":
        reply = await running.service.respond(words[1], ResponseHead(status=200))
        return f"refused {reply.status}" if reply else "passed"
    origin, target = split_url(words[0])
    result = await running.service.admit(
        wire(
            scheme=origin.scheme,
            host=origin.host,
            port=origin.port,
            target=target,
            hosts=(origin.authority,),
            sni=None,
        )
    )
    if isinstance(result, ProxyReply):
        return f"refused {result.status}"
    return f"admitted {result.id} {result.needs_response}"


if __name__ == "__main__":
    STARTS["envoy"] = STARTS["icap"] = start  # type: ignore[index]  # a dict, to the type checker a Mapping
    sys.exit(main())
