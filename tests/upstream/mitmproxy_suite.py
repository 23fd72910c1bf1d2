"""mitmproxy's own test suite, with the patches of the addon in its process.

mitmproxy has no sdist with tests on the package index (its newest sdist is of version 0.15), so they
come from its repository, and CI cannot run them:

    $ cd .tox/upstream/upstream
    $ git clone --depth 1 --branch v12.3.1 https://github.com/mitmproxy/mitmproxy mitmproxy-12.3.1
    $ rm -r mitmproxy-12.3.1/mitmproxy

The folder must be named after the installed version. Its package is removed so that the installed one
is tested.
"""

from __future__ import annotations

from upstream.suite import HERE, Difference, Suite

DIFFERENCES = (
    Difference(
        tests=(
            "test/mitmproxy/addons/test_proxyserver.py::test_reverse_http3_and_quic_stream[http3]",
        ),
        reason="A gate drops the trailers of a request, because they arrive after the verdict."
        " The site of this test echoes them.",
    ),
)

SUITE = Suite(
    project="mitmproxy",
    package="mitmproxy",
    selection=("test/mitmproxy/proxy", "test/mitmproxy/net", "test/mitmproxy/addons"),
    differences=DIFFERENCES,
    plugin="upstream.mitmproxy_plugin",
    environment={"PYTHONPATH": str(HERE.parent)},
)
