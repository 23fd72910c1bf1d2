"""The gateway: what several integrations need, without a framework.

All modules are for proxies, except `patch`, which also describes the replaced methods of Scrapy.
"""
