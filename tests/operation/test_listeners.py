"""Addresses that cannot be listened on: the sentence names the remedy."""

from __future__ import annotations

import errno
import os

import pytest

from robots_guard.errors import SettingsError
from robots_guard.operation import listeners
from robots_guard.operation.listeners import Address, listening


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOENT, "create the directory /run/guard"),
        (errno.EACCES, "let this user write to the directory /run/guard, or choose another one"),
        (errno.EROFS, "choose another address"),
    ],
)
def test_the_remedy_is_that_of_the_fault(monkeypatch, number, remedy):
    def fail(path):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(listeners, "_listen_at_path", fail)

    with (
        pytest.raises(SettingsError, match=f"cannot listen .*: {remedy}$"),
        listening(Address(path="/run/guard/envoy.sock"), "--envoy"),
    ):
        pass
