"""The fields of a response that only the guard sets, so that clients can trust them.

A proxy removes them from the responses of sites, also from interim responses and trailers.
"""

from __future__ import annotations

VERDICT = "Robots-Guard"  # of a refusal, and of a robots.txt from the cache
SIGNALS = "Robots-Guard-Signals"
OWN_FIELDS = (VERDICT, SIGNALS)
