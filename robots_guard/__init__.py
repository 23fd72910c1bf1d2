"""robots_guard: one guard that asks robots.txt before a crawler does."""
