"""The fields of a response that only the guard sets, so that clients can trust them.

The proxy and Envoy remove them from the responses of sites, also from interim responses and
trailers. Squid cannot tell a site's `Robots-Guard` from the guard's, and removes the other one only.
"""

from __future__ import annotations

VERDICT = "Robots-Guard"  # of a refusal, and of a robots.txt from the cache
SIGNALS = "Robots-Guard-Signals"
OWN_FIELDS = (VERDICT, SIGNALS)
