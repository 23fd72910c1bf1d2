"""Fetchers: one hop, bounded, and no judgement of what it brings."""
