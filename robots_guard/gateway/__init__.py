"""The gateway: what several integrations need, without a framework.

All modules but `patch` are for proxies. Replaced methods of Scrapy are described by `patch` too.
"""
