"""The console over a prepared scene, called without a network."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest
from console.material import scene

from robots_guard.app.console import app

TOKEN = "t0ken-of-the-tests"
HOST = "127.0.0.1:8099"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    prepared = scene(tmp_path_factory.mktemp("scene"))
    yield prepared
    prepared.store.close()


@asynccontextmanager
async def client(application, **options):
    options = {"base_url": f"http://{HOST}", **options}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=application), **options
    ) as browser:
        yield browser
    getattr(application, "close", lambda: None)()


def let_in(application, **options):
    """Return a client that has the cookie."""
    return client(application, cookies={"robots_guard_8099": TOKEN}, **options)


@pytest.fixture
async def console(place):
    async with let_in(app(place.sources, hosts=[HOST], token=TOKEN)) as browser:
        yield browser
