"""The rows of evasion.jsonl, by how they are sent; each proxy is tested with all of them."""

from __future__ import annotations

from protocol.rows import rows

ROWS = rows("evasion.jsonl")
SPELLINGS = [row for row in ROWS if row["form"] == "origin-form" and "expected_by_profile" in row]
ABSOLUTE = [row for row in ROWS if row["form"] == "absolute-form"]
NAMES = {row["id"]: row for row in ROWS if "expected_by_profile" not in row}


def target_bytes(row):
    """The target as it goes on the wire."""
    latin = row["encoding"] == "latin-1 bytes" or all(
        ord(each) < 256 for each in row["url_or_request_target"]
    )
    return row["url_or_request_target"].encode("latin-1" if latin else "utf-8")


#: The fields of the rows in which only fields are special.
FIELDS = {
    "ev191": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
    "ev194": "X-HTTP-Method-Override: GET\r\nContent-Length: 0\r\n",
    "ev195": "Range: bytes=0-3\r\n",
}
