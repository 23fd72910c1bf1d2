"""Fetchers: each makes one bounded hop and does not judge the response."""
