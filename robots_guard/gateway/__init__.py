"""The gateway: what several integrations need, without a framework.

Most modules are for proxies and servers. Scrapy and the client libraries use `errors`, `patch` and
`wire`, too.
"""
