"""Patches: replacements of mitmproxy methods that are wrong for a proxy that must not fail open.

Each module is one patch (`robots_guard.gateway.patch`), except for what several of them share:

    write_check    the gate that produces the requests to write
    interim        the event for interim responses
    codes          error codes of mitmproxy's protocol errors
"""

from __future__ import annotations

from mitmproxy.master import Master

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import (
    addon_dispatch,
    connection_crashes,
    connection_transports,
    http1_body_reader,
    http1_client_bytes,
    http1_client_head,
    http1_client_writer,
    http1_server_input,
    http1_server_writer,
    http2_client_interim,
    http2_client_writer,
    http2_early_resets,
    http2_server_resets,
    http3_client_writer,
    http_layer_writes,
    http_stream_connection,
    http_stream_hooks,
    http_stream_responses,
    http_stream_uploads,
    message_checks,
    name_resolution,
    replay_crashes,
    server_port,
    server_tasks,
    tls_client_hello,
)

#: Installed wherever the addon is, also in a mitmdump.
ADDON_PATCHES = (
    http_stream_connection.PATCH,
    http_stream_uploads.PATCH,
    http_stream_responses.PATCH,
    http1_client_writer.PATCH,
    http1_client_head.PATCH,
    http1_client_bytes.PATCH,
    http1_server_input.PATCH,
    http1_server_writer.PATCH,
    http1_body_reader.PATCH,
    http2_client_writer.PATCH,
    http2_client_interim.PATCH,
    http2_early_resets.PATCH,
    http2_server_resets.PATCH,
    http3_client_writer.PATCH,
    tls_client_hello.PATCH,
    connection_crashes.PATCH,
    connection_transports.PATCH,
    replay_crashes.PATCH,
    server_tasks.PATCH,
    addon_dispatch.PATCH,
    name_resolution.PATCH,
    server_port.PATCH,
)
#: Installed by `robots-guard proxy`, too.
COMMAND_PATCHES = (
    message_checks.PATCH,
    http_stream_hooks.PATCH,
    http_layer_writes.PATCH,
)


def install_in(master: Master) -> None:
    """Install the patches of the addon: in this process, and in the addon manager of this master.

    `name_resolution` is installed in an event loop by its first check.
    """
    install_patches(ADDON_PATCHES)
    addon_dispatch.cache_handlers(master.addons)
