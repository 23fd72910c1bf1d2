"""Scrapy's own test suite, with the add-on among the default settings of every crawler."""

from __future__ import annotations

from upstream.suite import HERE, Difference, Suite

ENGINE = "tests/test_engine.py::TestEngine::"
SUBPROCESS = "tests/test_crawler_subprocess.py::Test"

DIFFERENCES = (
    Difference(
        (
            "tests/test_command_fetch.py::TestFetchCommand::test_redirect_disabled",
            "tests/test_pipeline_crawl.py::TestFileDownloadCrawl::test_download_media_redirected_default_failure",
            "tests/test_pipeline_crawl.py::TestFileDownloadCrawl::test_download_media_wrong_urls",
            "tests/test_scheduler.py::TestIntegrationWithDownloaderAwareInMemory::test_integration_downloader_aware",
        ),
        "The test counts responses in DownloaderStats, which has those to robots.txt, as with Scrapy's"
        " own middleware.",
    ),
    Difference(
        (
            f"{ENGINE}test_crawler",
            "tests/test_engine_stop_download_bytes.py::TestBytesReceivedEngine::test_crawler",
        ),
        "The test counts `request_scheduled`, and the first request of a site is scheduled once more"
        " while its policy is fetched.",
    ),
    Difference(
        (
            "tests/test_command_shell.py::TestShellCommand::test_dns_failures",
            "tests/test_crawl.py::TestCrawl::test_retry_conn_failed",
            "tests/test_crawl.py::TestCrawl::test_retry_dns_error",
            "tests/test_request_left.py::TestCatching::test_noconnect",
            "tests/test_request_left.py::test_noconnect",  # Scrapy 2.19
            f"{SUBPROCESS}AsyncCrawlerProcessSubprocess::test_caching_hostname_resolver_ipv6",
            f"{SUBPROCESS}CrawlerProcessSubprocess::test_caching_hostname_resolver_ipv6",
        ),
        "The site cannot be reached, so its robots.txt cannot: no page is requested (RFC 9309 section"
        " 2.3.1.4), and the crawl ends when ROBOTS_GUARD_MAX_IDLE has passed.",
    ),
    Difference(
        (
            "tests/test_request_attribute_binding.py::TestCrawl::test_downloader_middleware_raise_exception",
        ),
        "The middleware fails for every request, that for robots.txt included.",
    ),
    Difference(
        ("tests/test_downloadermiddleware.py::",),
        "The download of the page is replaced, but not that of the robots.txt of example.com: without"
        " a network it cannot be fetched.",
        sometimes=True,
    ),
)

SUITE = Suite(
    project="scrapy",
    package="scrapy",
    selection=("tests",),
    differences=DIFFERENCES,
    arguments=("-n", "2", "--timeout", "120"),
    switch=HERE / "switches" / "scrapy",
)
