"""What `.ci/run` hands uv of pip's settings."""

from __future__ import annotations

import runpy

import pytest
from release.conftest import ROOT

script = runpy.run_path(str(ROOT / ".ci" / "uv_settings.py"))
ALWAYS = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}


def variables(*lines):
    return script["variables"](script["settings"]("\n".join(lines)))


def test_each_setting_of_pip_has_its_variable():
    assert variables(
        "global.index-url='https://index.test/simple'",
        "global.extra-index-url='file:///opt/one file:///opt/two'",
        "global.find-links='/opt/wheels\\n/opt/more'",
        "global.cert='/etc/ca.pem'",
    ) == {
        **ALWAYS,
        "UV_DEFAULT_INDEX": "https://index.test/simple",
        "UV_INDEX": "file:///opt/one file:///opt/two",
        "UV_FIND_LINKS": "/opt/wheels,/opt/more",
        "SSL_CERT_FILE": "/etc/ca.pem",
    }


def test_without_settings_uv_has_its_own():
    assert variables() == ALWAYS


def test_an_environment_variable_overrides_a_file():
    lines = ":env:.find-links='/a'", "global.find-links='/b'", "install.find-links='/c'"
    assert variables(*lines)["UV_FIND_LINKS"] == "/a"
    assert variables(*lines[1:])["UV_FIND_LINKS"] == "/c"


def test_settings_of_other_commands_and_without_effect_are_left_out():
    assert variables("freeze.all='1'", "global.root-user-action='ignore'") == ALWAYS


def test_a_setting_that_uv_has_under_no_known_name_is_an_error():
    with pytest.raises(KeyError, match="only-binary"):
        variables("install.only-binary=':all:'")
