"""Error codes of mitmproxy's protocol errors.

They are an enumeration since version 12, and HTTP status codes before.
"""

from __future__ import annotations

from typing import Any

from mitmproxy.net.http import status_codes
from mitmproxy.proxy.layers.http import _events

_enumeration: Any = getattr(_events, "ErrorCode", None)

CLIENT_DISCONNECTED: Any = (
    _enumeration.CLIENT_DISCONNECTED if _enumeration else status_codes.CLIENT_CLOSED_REQUEST
)
REQUEST_TOO_LARGE: Any = (
    _enumeration.REQUEST_TOO_LARGE if _enumeration else status_codes.PAYLOAD_TOO_LARGE
)
