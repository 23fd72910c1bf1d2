"""The manifests of the page on Kubernetes can be read, and run commands that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from robots_guard.app.cli.proxy import proxy

PAGE = Path(__file__).parents[2] / "docs" / "start" / "kubernetes.md"
IMAGE = "registry.example/robots-guard"
BLOCKS = [
    YAML(typ="safe").load(text)
    for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
]
POD, POLICY = BLOCKS[0]["spec"], BLOCKS[1]["spec"]


def containers() -> list[dict[str, Any]]:
    return [*POD["initContainers"], *POD["containers"]]


@pytest.mark.parametrize(
    "container",
    [each for each in containers() if each["image"] == IMAGE],
    ids=lambda it: it["name"],
)
def test_a_container_runs_a_command_with_options_that_exist(container):
    name, *words = container["args"]
    command = proxy.commands.get(words[0], proxy)
    options = {option for each in command.params for option in each.opts}

    assert name == "proxy"
    assert {word for word in words if word.startswith("--")} <= options


def test_a_container_mounts_volumes_of_its_pod():
    volumes = {volume["name"] for volume in POD["volumes"]}
    mounted = {mount["name"] for each in containers() for mount in each["volumeMounts"]}

    assert mounted == volumes


def test_the_crawler_does_not_see_the_key_of_the_ca():
    crawler = POD["containers"][0]

    assert [mount["name"] for mount in crawler["volumeMounts"]] == ["trusted"]
    assert {each["value"] for each in crawler["env"]} == {
        "http://127.0.0.1:8080",
        "/trusted/ca.pem",
    }


def test_crawlers_reach_the_proxy_and_names_only():
    ports = [port["port"] for rule in POLICY["egress"] for port in rule["ports"]]

    assert POLICY["policyTypes"] == ["Egress"]
    assert ports == [8080, 53, 53]
