"""HTML pages: bytes -> statements and links. Knows the text of a page only."""
