"""ICAP (RFC 3507): the guard behind Squid, which asks about each request and hands in responses."""
