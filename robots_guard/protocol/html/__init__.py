"""HTML pages: bytes -> statements and links."""
