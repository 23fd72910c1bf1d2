"""The decision service: the guard for a data plane, such as Envoy or Squid.

The data plane terminates HTTP and TLS, and asks the service about each request. It decides nothing,
and passes nothing that the service has not permitted.
"""

from importlib.util import find_spec

from robots_guard.errors import MissingExtra

#: What the extra brings. It is only looked for, because each listener imports what it needs.
_PACKAGES = ("cryptography", "grpc", "httptools", "jinja2", "prometheus_client")

if not all(map(find_spec, _PACKAGES)):
    raise MissingExtra("serve", "the decision service")
