"""The Robots Exclusion Protocol: bytes -> rules -> match. Signals: bytes -> statements."""
