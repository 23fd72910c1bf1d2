"""Fetching robots.txt inside Scrapy: by its downloader, or by a separate client where a handler
hides its connections."""
