"""Minimising: the parts of a case without which the violation is gone (delta debugging, Zeller's ddmin)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from integrations.mitmproxy.differential.cases import Case
from integrations.mitmproxy.differential.client import Client
from integrations.mitmproxy.differential.judging import Violation, judge
from integrations.mitmproxy.differential.running import Running

Parts = list[bytes]


async def minimised(proxy: Running, case: Case) -> tuple[Case, list[Violation]]:
    """Return the smallest case found that still violates, and its violations by the readers in this process."""
    lane, client = proxy.lanes[0], Client()
    fixed = 1 if case.way.speaks == "h2" else 0  # the preface

    async def violations(parts: Parts) -> list[Violation]:
        before, begun = proxy.passes(), len(lane.recordings)
        await proxy.send(client, lane, replace(case, pieces=case.pieces[:fixed] + tuple(parts)))
        return judge(lane.recordings[begun:], proxy.passes() - before, by_servers=False).violations

    parts = list(case.pieces[fixed:])
    if case.way.speaks == "http1":
        parts = re.findall(rb"[^\r\n]*[\r\n]+|[^\r\n]+", b"".join(parts))
    if not await violations(parts):
        return case, []
    parts = await _smallest(parts, violations)
    smallest = replace(case, pieces=case.pieces[:fixed] + tuple(parts))
    return smallest, await violations(parts)


async def _smallest(parts: Parts, fails: Callable[[Parts], Awaitable[object]]) -> Parts:
    """Leave out halves, quarters and so on, down to single parts, as long as what is left still fails."""
    step = len(parts) // 2
    while step:
        at = 0
        while at < len(parts):
            without = parts[:at] + parts[at + step :]
            if without and await fails(without):
                parts = without
            else:
                at += step
        step //= 2
    return parts
