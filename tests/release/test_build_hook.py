"""The build hook, which adds files to the wheel and compiles the core on request."""

from __future__ import annotations

import importlib.util

import pytest
from release.conftest import ROOT

from robots_guard.configuration.environment import PREFIX


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_variable_is_not_read_as_a_setting(hook):
    assert not hook.COMPILED.startswith(PREFIX)
