"""The archive of a bundle: a zip file of a few known kinds of names.

Invariant: nothing is extracted to a disk, and no input, however hostile, is read beyond the limits.
An archive with names outside those of a bundle, with two files of one name, with links or with
encryption is refused, and so is one that is not packed as bundles are: programs find the files of an
archive in different ways, by its directory or from its first byte on, and all must find the same.
The same files give the same archive: names are sorted and times are fixed.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import struct
import zipfile
import zlib
from typing import BinaryIO

from robots_guard.errors import SettingsError

LARGEST_ARCHIVE = 256 * 1024 * 1024  # bytes
LARGEST_CONTENT = 256 * 1024 * 1024  # bytes of all files together
MOST_FILES = 20_000
MANIFEST = "MANIFEST.sha256"
SIGNATURE = "signature.json"  # of the manifest

_MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can state
_NAME = re.compile(r"([a-z]{1,20}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,160}")
_END = b"PK\x05\x06"
_END_RECORD = struct.Struct("<4s4H2LH")
_END_BYTES = _END_RECORD.size
_ZIP64_BYTES = 20  # of the record before the end that says where the larger end is
_LISTED_BYTES = 46  # of a file in the directory of an archive, without its name
_ENTRY_BYTES = _LISTED_BYTES + 200  # of a file in the directory of an archive, at most
_LISTED = re.compile(r"([0-9a-f]{64})  (.+)")


def bundle_name(identity: str = "") -> str:
    """Return a name for a bundle's file: of one decision, or of a selection.

    It can stand in a path and in a header field: of an id it has letters, digits and hyphens only.
    """
    letters = re.sub(r"[^A-Za-z0-9-]", "", identity)[:64]
    return f"robots-guard-bundle-{letters or 'selection'}.zip"


class NoBundle(SettingsError):
    """Raised for a file that is not a bundle."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this is not a bundle ({why}): make one with robots-guard audit bundle ID -o FILE.zip"
        )


def read_archive(data: bytes) -> dict[str, bytes]:
    """The files in an archive. Raises NoBundle."""
    if len(data) > LARGEST_ARCHIVE:
        raise NoBundle(f"it is larger than {LARGEST_ARCHIVE // 2**20} MiB")
    _check_end(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries)
            _check_packing(data, entries)
            return _contents(data, entries)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        UnicodeDecodeError,
        ValueError,
        OSError,
    ) as error:
        raise NoBundle(f"a damaged zip file: {str(error)[:80] or type(error).__name__}") from error


def _check_end(data: bytes) -> None:
    """Check that the directory of the archive is short, before it is read. Raises NoBundle."""
    end = data[-_END_BYTES:]
    if len(end) < _END_BYTES or not end.startswith(_END) or end[-2:] != b"\0\0":
        raise NoBundle("not a zip file")
    before = data[-_END_BYTES - _ZIP64_BYTES : -_END_BYTES]
    size = int.from_bytes(end[12:16], "little")
    if size > MOST_FILES * _ENTRY_BYTES or before.startswith(b"PK\x06\x07"):
        raise NoBundle(f"it has more than {MOST_FILES} files")


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    """Check what the directory says of the files. Raises NoBundle."""
    if len(entries) > MOST_FILES:
        raise NoBundle(f"it has more than {MOST_FILES} files")
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        if not _NAME.fullmatch(name) or ".." in name or entry.orig_filename != name:
            raise NoBundle(f"a bundle has no file {name[:60]!r}")
        if name in seen:
            raise NoBundle(f"it has two files {name!r}")
        seen.add(name)
    if sum(entry.file_size for entry in entries) > LARGEST_CONTENT:
        raise NoBundle(f"its files are larger than {LARGEST_CONTENT // 2**20} MiB")


def _check_packing(data: bytes, entries: list[zipfile.ZipInfo]) -> None:
    """Check that the archive is packed as `write_archive` does it: with nothing before, between or
    after the files, and without other attributes of them. Raises NoBundle."""
    offset = 0
    for entry in entries:
        header = entry.FileHeader()
        is_usual = _attributes(entry) == _attributes(_zip_entry(entry.filename))
        if not is_usual or entry.header_offset != offset or not data.startswith(header, offset):
            raise NoBundle(f"{entry.filename!r} is not packed as bundles pack it")
        offset += len(header) + entry.compress_size
    count, size = len(entries), sum(_LISTED_BYTES + len(entry.filename) for entry in entries)
    if data[offset + size :] != _END_RECORD.pack(_END, 0, 0, count, count, size, offset, 0):
        raise NoBundle("it has data that belong to none of its files")


def _attributes(entry: zipfile.ZipInfo) -> tuple[object, ...]:
    """All that an archive states of a file, except its name, content, size and offset."""
    return (
        entry.date_time,
        entry.compress_type,
        entry.comment,
        entry.extra,
        entry.create_system,
        entry.create_version,
        entry.extract_version,
        entry.reserved,
        entry.flag_bits,
        entry.volume,
        entry.internal_attr,
        entry.external_attr,
    )


def _contents(data: bytes, entries: list[zipfile.ZipInfo]) -> dict[str, bytes]:
    """The content of the files, whatever sizes the directory states. Raises NoBundle, and zlib.error
    for a damaged file."""
    files, left = {}, LARGEST_CONTENT
    for entry in entries:
        begin = entry.header_offset + len(entry.FileHeader())
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        content = unpacker.decompress(data[begin : begin + entry.compress_size], left + 1)
        left -= len(content)
        if left < 0 or len(content) != entry.file_size:
            raise NoBundle(f"{entry.filename!r} has another size than it states")
        if not unpacker.eof or unpacker.unused_data or zlib.crc32(content) != entry.CRC:
            raise NoBundle(f"{entry.filename!r} is damaged")
        files[entry.filename] = content
    return files


def write_archive(target: BinaryIO, files: dict[str, bytes]) -> None:
    """Write files as an archive, in the order of their names."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            archive.writestr(_zip_entry(name), files[name])


def _zip_entry(name: str) -> zipfile.ZipInfo:
    """The entry of a file in a bundle's archive. All files have the same attributes."""
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    entry.create_system = 3  # Unix, on every system
    return entry


def manifest_of(files: dict[str, bytes]) -> bytes:
    """The digests of all files but the manifest and its signature, as `sha256sum -c` reads them."""
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in sorted(files.items())
        if name not in (MANIFEST, SIGNATURE)
    ]
    return "".join(lines).encode()


def manifest_problems(files: dict[str, bytes]) -> list[str]:
    """How the files differ from the manifest."""
    stated, expected = files.get(MANIFEST), manifest_of(files)
    if stated is None:
        return [f"{MANIFEST} is missing"]
    if stated == expected:
        return []
    if len(stated) > MOST_FILES * _ENTRY_BYTES:
        return [f"{MANIFEST} lists more than {MOST_FILES} files"]
    listed = _digests(stated)
    actual = _digests(expected)
    problems = [
        f"{name} is not as {MANIFEST} lists it"
        for name in actual
        if listed.get(name) not in (None, actual[name])
    ]
    problems += [f"{name} is not listed in {MANIFEST}" for name in actual if name not in listed]
    problems += [
        f"{name} is listed in {MANIFEST} and missing" for name in listed if name not in actual
    ]
    return problems or [f"{MANIFEST} is not written as bundles write it"]


def _digests(manifest: bytes) -> dict[str, str]:
    found = map(_LISTED.fullmatch, manifest.decode("ascii", "replace").splitlines())
    return {match[2]: match[1] for match in found if match}
