"""The test suites of the frameworks, run with robots_guard switched on.

    $ tox -e upstream -- scrapy
    $ PYTHONPATH=tests python -m upstream scrapy tests/test_crawl.py

`suite` gets a suite and runs it, and each `*_suite` module describes one framework's. `switches` has a
folder for each framework that cannot be switched on by a plugin of pytest.
"""
