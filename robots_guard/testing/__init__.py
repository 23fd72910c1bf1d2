"""For tests of crawlers and of the guard itself: origins that do as they are told and record what reached them."""

from robots_guard.testing.origin import Loopback, Received, RecordingOrigin, Reply

__all__ = ["Loopback", "Received", "RecordingOrigin", "Reply"]
