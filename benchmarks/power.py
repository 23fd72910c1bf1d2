"""Power cuts on a real file system: ext4 is shut down without flushing its journal, then mounted
again.

    python benchmarks/power.py [--cuts 50] [--fsync yes|no]

Needs root, a loop device and mkfs.ext4. A writer prints the ids of acknowledged records. After a
while the file system drops all data that is not on its device yet (EXT4_IOC_SHUTDOWN), and the
records found after the next mount are counted.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from audit.decisions import audit_log_in, decision

from robots_guard.audit.read.reader import Unreadable, records
from robots_guard.errors import AuditLogError

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = (2).to_bytes(4, sys.byteorder)
MEGABYTE = 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--fsync", choices=["yes", "no"], default="yes")
    parser.add_argument("--write", type=Path, help="run as the writer, in this directory")
    given = parser.parse_args()
    if given.write:
        write(given.write, fsync=given.fsync == "yes")
        return
    with tempfile.TemporaryDirectory() as place:
        image, mount = Path(place) / "image", Path(place) / "mount"
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(64 * MEGABYTE)
        run("mkfs.ext4", "-q", image)
        try:
            outcomes = [cut(image, mount, number, given.fsync) for number in range(given.cuts)]
        finally:
            subprocess.run(["umount", str(mount)], check=False, stderr=subprocess.DEVNULL)
    said, lost = (sum(column) for column in zip(*outcomes, strict=True))
    print(f"{given.cuts} power cuts, fsync {given.fsync}: {said} records acknowledged, {lost} lost")


def cut(image: Path, mount: Path, number: int, fsync: str) -> tuple[int, int]:
    """Simulate one power cut.

    Returns how many records were acknowledged, and how many of them are lost.
    """
    directory = mount / f"made-{number}" / "log"
    run("mount", "-o", "loop", image, mount)
    command = [sys.executable, __file__, "--write", str(directory), "--fsync", fsync]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        said = os.read(writer.stdout.fileno(), 8)
        time.sleep(random.random() / 2)
        root = os.open(mount, os.O_RDONLY)
        said += _read(writer.stdout.fileno())
        fcntl.ioctl(root, SHUTDOWN, NO_LOG_FLUSH)
        os.close(root)
        writer.kill()
    run("umount", mount)
    run("mount", "-o", "loop", image, mount)
    acknowledged = {
        said[place : place + 8].decode() for place in range(0, len(said) - len(said) % 8, 8)
    }
    found = (
        {record.client for record in records(directory, trouble=Unreadable())}
        if directory.exists()
        else set()
    )
    run("umount", mount)
    return len(acknowledged), len(acknowledged - found)


def _read(descriptor: int) -> bytes:
    """Return what the writer has printed so far, which is what it acknowledged before the power
    cut.
    """
    os.set_blocking(descriptor, False)
    said = b""
    try:
        while piece := os.read(descriptor, MEGABYTE):
            said += piece
    except BlockingIOError:
        pass
    return said


def write(directory: Path, *, fsync: bool) -> None:
    """Record and acknowledge until recording fails.

    Files are short, so that some cuts hit a new file.
    """
    audit_log = audit_log_in(directory, fsync=fsync, rotate_bytes=4096, retention=None)
    number = 10_000_000
    while True:
        try:
            audit_log.write(decision(client=str(number)))
        except AuditLogError:
            return
        os.write(1, str(number).encode())
        number += 1


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    main()
