"""Scripted origins for tests of crawlers and of the guard: they record every request that reaches
them."""

from robots_guard.testing.origin import Loopback, Received, RecordingOrigin, Reply

__all__ = ["Loopback", "Received", "RecordingOrigin", "Reply"]
