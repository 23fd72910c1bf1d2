"""Policy stores, chosen by URL."""
