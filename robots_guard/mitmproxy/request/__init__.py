"""A request inside mitmproxy: what it says, how it was judged, and the form in which it is written."""
