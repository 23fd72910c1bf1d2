"""The charset of an HTML page: its bytes are converted to UTF-8.

A byte order mark takes precedence over the charset of the Content-Type, and that over the charset
that the page itself declares (WHATWG Encoding, "decode"; HTML, "encoding sniffing").
If the bytes could show a META in another charset that they hide in this one, the page is converted
in both ways. What either document denies is denied.
"""

from __future__ import annotations

import codecs
import re

PRESCAN = 1024  # bytes in which a page declares its charset (HTML, "prescan a byte stream")

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PARAMETER = re.compile(r"charset\s*=\s*[\"']?\s*([^\s;\"',]+)", re.IGNORECASE)
_DECLARATION = re.compile(
    rb"<meta[\s/][^>]*?charset\s*=\s*[\"']?\s*([^\s;\"'>/]+)"
    rb"|<\?xml\s[^>]*?encoding\s*=\s*[\"']([^\"'>]+)[\"']",
    re.IGNORECASE,
)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_UTF_8 = frozenset({"utf-8", "utf8", "unicode-1-1-utf-8", "x-unicode20utf8"})
#: Labels that mean another encoding in the standard than in Python.
_CODECS = {
    "ascii": "windows-1252",
    "us-ascii": "windows-1252",
    "iso-8859-1": "windows-1252",
    "iso8859-1": "windows-1252",
    "latin1": "windows-1252",
    "l1": "windows-1252",
    "iso-8859-9": "windows-1254",
    "latin5": "windows-1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "ks_c_5601-1987": "cp949",
    "euc-kr": "cp949",
    "shift_jis": "cp932",
    "sjis": "cp932",
    "x-sjis": "cp932",
    "utf-16": "utf-16-le",
    "unicode": "utf-16-le",
    "x-mac-cyrillic": "mac-cyrillic",
    "macintosh": "mac-roman",
    "big5": "big5hkscs",
    "windows-874": "cp874",
    "tis-620": "cp874",
}
#: Python's names of the encodings of the standard. Browsers do not know the others (UTF-7, UTF-32,
#: EBCDIC, HZ, rot13): decoding them could hide a META that browsers see, or show another.
_KNOWN = frozenset(
    {
        "utf-8", "utf-16-le", "utf-16-be", "big5hkscs", "cp932", "cp949", "euc_jp", "gb18030",
        "iso2022_jp", "koi8-r", "koi8-u", "cp866", "cp874", "mac-roman", "mac-cyrillic",
        *(f"cp{page}" for page in range(1250, 1259)),
        *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
    }
)  # fmt: skip
_WIDE = ("utf-16-le", "utf-16-be")
_STATEFUL = "iso2022_jp"
_FALLBACK = "cp1252"


def documents(body: bytes, content_type: str) -> list[bytes]:
    """Return the page in UTF-8, first as a browser reads it.

    Further documents follow if a crawler could read the bytes in another way: as ASCII, if the
    charset is doubtful, and without NUL bytes. Each may contain bytes that are not UTF-8.
    """
    mark, charset = _charset(body, content_type)
    content = body[mark:] if mark else body
    found = [_utf_8(content, charset)]
    if _is_doubtful(content, charset, has_mark=mark > 0, text=found[0]):
        found.append(content)
    without_nul = [each.replace(b"\0", b"") for each in found if b"\0" in each]
    return found + without_nul


def _charset(body: bytes, content_type: str) -> tuple[int, str]:
    """Return the length of the byte order mark, and Python's name of the charset."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return len(mark), charset
    parameter = _PARAMETER.search(content_type)
    found = _codec(parameter[1]) if parameter else ""
    return 0, found or _declared(body) or _default(body)


def _declared(body: bytes) -> str:
    """Return the charset that the page declares in its first bytes, or an empty string."""
    start = body[:PRESCAN]
    if b"<" not in start:
        return ""
    declaration = _DECLARATION.search(_COMMENT.sub(b"", start))
    if not declaration:
        return ""
    label = declaration[1] or declaration[2]
    found = _codec(label.decode("latin-1"))
    return "utf-8" if found in _WIDE else found  # the declaration was read as ASCII


def _default(body: bytes) -> str:
    if body.isascii():
        return "utf-8"
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as problem:
        is_cut = problem.end == len(body) and problem.reason == "unexpected end of data"
        return "utf-8" if is_cut else _FALLBACK
    return "utf-8"


def _codec(label: str) -> str:
    """Return Python's name of a charset, or an empty string if browsers do not know it."""
    label = label.strip().lower()
    if label in _UTF_8:
        return "utf-8"
    try:
        found = codecs.lookup(_CODECS.get(label, label)).name
    except (LookupError, ValueError):  # ValueError: a NUL
        return ""
    return found if found in _KNOWN else ""


def _utf_8(content: bytes, charset: str) -> bytes:
    if charset == "utf-8" or (content.isascii() and charset not in (*_WIDE, _STATEFUL)):
        return content
    return content.decode(charset, "replace").encode("utf-8", "replace")


def _is_doubtful(content: bytes, charset: str, *, has_mark: bool, text: bytes) -> bool:
    """Whether the bytes could be read as ASCII and would then have other tags."""
    if charset in _WIDE:
        return not has_mark and b"\0" not in content[:PRESCAN]
    if charset == _STATEFUL:
        return b"\x1b" in content
    # A codec may replace a byte of ASCII together with the invalid byte before it.
    return (
        charset in ("big5hkscs", "cp932", "cp949", "euc_jp", "gb18030") and b"\xef\xbf\xbd" in text
    )
