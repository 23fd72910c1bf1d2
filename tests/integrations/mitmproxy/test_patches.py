"""The replaced methods of mitmproxy and asyncio have known sources: a change of one fails here."""

from __future__ import annotations

import inspect

import pytest
from mitmproxy.addons import proxyserver
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.layers.http._http1 import Http1Connection
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.test import taddons
from support.digests import changed_methods

from robots_guard.gateway.patch import Patch, install_patches, method
from robots_guard.mitmproxy import patches
from robots_guard.mitmproxy.patches import ADDON_PATCHES, COMMAND_PATCHES

PATCHES = ADDON_PATCHES + COMMAND_PATCHES


def test_replaced_methods_have_known_sources():
    """If one differs: read what has changed, see whether the patch is still right and still needed, and add the digest
    to it."""
    assert changed_methods(PATCHES) == {}


async def test_the_patches_of_the_addon_are_installed_by_one_call():
    master = Master(Options())
    patches.install_in(master)
    replaced = [
        (patch, each) for patch in ADDON_PATCHES for each in patch.methods if each.new is not None
    ]
    assert len(replaced) > 20
    for patch, each in replaced:
        assert each.new.__code__ in replacements(getattr(patch.owner, each.name)), each
    assert type(master.addons) is patches.addon_dispatch.Addons


def replacements(method):
    """The code that all patches of a method have put in its place."""
    while hasattr(method, "__wrapped__"):
        yield method.__code__
        method = method.__wrapped__


def test_a_patch_is_installed_once():
    class Owner:
        def number(self):
            return 1

    patch = Patch(
        owner=Owner,
        methods=(method("number", new=lambda self, *, plain: plain(self) + 1),),
        versions="",
        reason="",
        report="",
    )
    install_patches([patch])
    install_patches([patch])
    assert Owner().number() == 2


def test_a_missing_method_is_an_error():
    """A gate must not be left out because mitmproxy has renamed a method."""
    patch = Patch(
        owner=Options,
        methods=(method("no_such_method", new=lambda *, plain: plain),),
        versions="",
        reason="",
        report="",
    )
    with pytest.raises(AttributeError):
        install_patches([patch])


def test_a_head_is_written_in_one_place_of_each_client():
    """If mitmproxy writes one elsewhere, too, this fails before anything is sent unjudged."""
    for module, writes in (
        (_http1, "assemble_request_head"),
        (_http2, "format_h2_request_headers"),
    ):
        lines = inspect.getsource(module).splitlines()
        assert (
            len([line for line in lines if f"{writes}(" in line and not line.startswith("def ")])
            == 1
        ), module


def test_mitmproxy_still_logs_a_crash():
    """`server_event` cannot be wrapped from outside: what it catches shows in its log only."""
    source = inspect.getsource(ConnectionHandler.server_event)
    assert 'self.log(f"mitmproxy has crashed!", logging.ERROR, exc_info=True)' in source


def test_mitmproxy_still_lacks_trailers():
    """If it does, the patch can go."""
    assert "HTTP trailers are not implemented yet" in inspect.getsource(Http1Connection.read_body)


async def test_options_the_patches_read_exist():
    with taddons.context(proxyserver.Proxyserver()) as context:
        assert {"validate_inbound_headers", "body_size_limit"} <= set(context.options.keys())
