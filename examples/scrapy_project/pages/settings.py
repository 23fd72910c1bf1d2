"""Settings of a project that obeys robots.txt."""

BOT_NAME = "pages"
SPIDER_MODULES = ["pages"]
USER_AGENT = "mybot/1.0 (+https://example.com/mybot)"

ADDONS = {"robots_guard.scrapy.Addon": 500}
ROBOTS_GUARD_AGENT = "mybot"
