"""Two independent readers: each request that any reader finds at an origin is in the audit log as a PASS.

Generated clients send through a real proxy to origins that record what arrives; `readers` and `servers` say which
requests that is. By hand, for as long as one likes: `python -m integrations.mitmproxy.differential`
(see CONTRIBUTING.md).
"""

from __future__ import annotations

import pytest
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.differential.running import MODES, Result, proxied

CASES = 500  # for each kind of proxy in each mode
RUNS = [(kind, mode) for kind in KINDS for mode in MODES]


@pytest.mark.parametrize(("kind", "mode"), RUNS)
async def test_only_permitted_requests_reach_an_origin(kind, mode, tmp_path):
    first = RUNS.index((kind, mode)) * CASES
    async with proxied(kind, mode, tmp_path) as proxy:
        result = await proxy.run(range(first, first + CASES))
    assert not result.violations, describe(result, kind, mode)
    assert not result.faults, "\n".join(result.faults)
    # Much gets through, or this would show nothing.
    for reader in (
        "h11",
        "llhttp",
        "nginx",
        "frames",
        "nghttp2",
    ):
        assert result.judgement.found[reader] > CASES / 20, reader


def describe(result: Result, kind: str, mode: str) -> str:
    """The violations, the bytes that led to them, and how to see each again."""
    lines = []
    for case, violation in {each.case: each for each in reversed(result.violations)}.items():
        sent = result.cases[case].data if case in result.cases else b""
        command = "PYTHONPATH=tests python -m integrations.mitmproxy.differential"
        replay = f"{command} --kind {kind} --mode {mode} --replay {case}"
        lines += [
            f"{violation}: {result.cases.get(case)}",
            f"  sent {sent[:2000]!r}",
            f"  again: {replay}",
        ]
    return "\n".join(["", *lines])
