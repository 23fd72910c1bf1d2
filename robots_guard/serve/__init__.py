"""The decision service: the guard for an industrial data plane, such as Envoy or Squid.

The data plane terminates HTTP and TLS, and asks the service about each request. It decides nothing,
and passes nothing that the service has not permitted.
"""
