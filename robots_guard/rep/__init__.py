"""The Robots Exclusion Protocol: bytes -> rules -> match. Knows text and paths only."""
