"""ICAP (RFC 3507): the guard behind Squid, which asks about each request and hands in responses."""

from robots_guard.serve.icap.server import start

__all__ = ["start"]
