"""The files of examples/ that start a proxy use existing options."""

from __future__ import annotations

import ast
import json
import re
import shlex
import socket
import subprocess
import sys

import pytest
import ruamel.yaml as yaml
from integrations.mitmproxy.process import PATIENCE, ROOT, SCRIPT, proxy, refused_start
from integrations.mitmproxy.wire import plain
from support.programs import program


def unit():
    text = (ROOT / "examples" / "robots-guard-proxy.service").read_text()
    return shlex.split(
        re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.MULTILINE)[1].replace("\\\n", " ")
    )


def instructions():
    """The lines of the Containerfile that are no comments, by their first word."""
    lines = (ROOT / "examples" / "Containerfile").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def container():
    lines = instructions()
    return json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"])


def compose():
    """The command of the proxy in compose.yaml."""
    return ["robots-guard", *read("compose.yaml")["services"]["proxy"]["command"]]


def gateway():
    """The command of the proxies of kubernetes/proxy.yaml."""
    (found,) = (each for each in read("kubernetes/proxy.yaml") if each["kind"] == "StatefulSet")
    return ["robots-guard", *found["spec"]["template"]["spec"]["containers"][0]["args"]]


def sidecar():
    """The command of the proxy of kubernetes/sidecar.yaml."""
    (deployment,) = read("kubernetes/sidecar.yaml")
    pod = deployment["spec"]["template"]["spec"]
    return ["robots-guard", *pod["initContainers"][0]["args"]]


def read(name):
    """A YAML file of examples/; a list if its name begins with a folder, as there are several documents."""
    reader = yaml.YAML(typ="safe")
    place = ROOT / "examples" / name
    return list(reader.load_all(place)) if "/" in name else reader.load(place)


@pytest.mark.parametrize("command", [unit, container, compose, gateway, sidecar])
def test_options_in_examples_exist(command, tmp_path):
    """All of them are read before a mode that does not exist ends the start."""
    words = command()
    assert words[0].endswith("robots-guard")
    assert words[1] == "proxy"
    users = tmp_path / "users"
    users.write_text("a:{SHA}x\n")
    options = [
        re.sub("@(/users)+", f"@{users}", word).replace("/data", str(tmp_path))
        for word in words[2:]
    ]
    options = [re.sub(r"\$\{\w+\}", str(tmp_path), word) for word in options]
    status, printed = refused_start("proxy", tmp_path, [*options, "--mode", "telepathy"])
    assert status == 2
    assert "telepathy" in printed, printed


def test_every_probe_is_the_containers_health_check():
    check = json.loads(instructions()["HEALTHCHECK"].partition("CMD ")[2])
    probes = [
        each[name]["exec"]["command"]
        for file in ("kubernetes/proxy.yaml", "kubernetes/sidecar.yaml")
        for document in read(file)
        if document["kind"] in ("StatefulSet", "Deployment")
        and "store" not in document["metadata"]["name"]
        for kind in ("initContainers", "containers")
        for each in document["spec"]["template"]["spec"][kind]
        for name in ("readinessProbe", "startupProbe")
        if name in each
    ]

    assert probes == [check] * 4


def test_kubernetes_policies_select_the_pods_that_they_mean():
    """A policy whose labels no pod has would be in force for nothing, without a word."""
    documents = [*read("kubernetes/proxy.yaml"), *read("kubernetes/crawlers.yaml")]
    pods = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in documents
        if document["kind"] in ("StatefulSet", "Deployment")
    ]
    spaces = [
        document["metadata"].get("labels", {})
        | {"kubernetes.io/metadata.name": document["metadata"]["name"]}
        for document in documents
        if document["kind"] == "Namespace"
    ]
    outside = [
        {"k8s-app": "kube-dns", "kubernetes.io/metadata.name": "kube-system"}
    ]  # what every cluster has
    text = json.dumps([each["spec"] for each in documents if each["kind"] == "NetworkPolicy"])
    selectors = re.findall(r'"matchLabels": (\{[^{}]*\})', text)

    assert len(selectors) >= 8
    for selector in map(json.loads, selectors):
        assert any(selector.items() <= labels.items() for labels in [*pods, *spaces, *outside])


def test_compose_files_are_there():
    """Each file that a service of compose.yaml mounts, except those that the operator makes."""
    services = read("compose.yaml")["services"].values()
    mounts = [volume.split(":")[0] for each in services for volume in each.get("volumes", [])]
    files = {mount for mount in mounts if mount.startswith("./")} - {"./users"}

    assert files
    assert [file for file in files if not (ROOT / "examples" / file).exists()] == []


def test_the_containers_health_check_asks_whether_requests_are_judged(tmp_path):
    """With a real htpasswd file, made as the Containerfile says; the check itself has no user."""
    made = [program("htpasswd"), "-cbB", str(tmp_path / "users"), "alice", "secret"]
    subprocess.run(made, check=True, capture_output=True, timeout=PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    check = instructions()["HEALTHCHECK"].partition("CMD ")[2]
    assert "9180" in container()
    command = json.loads(check.replace("9180", port))
    command[0] = sys.executable
    options = ["--proxyauth", f"@{tmp_path / 'users'}", "--metrics", port]
    with proxy(tmp_path, options) as integration:
        assert subprocess.run(command, check=False, timeout=PATIENCE).returncode == 0
        refused = plain(integration, "http://robots.guard/ready")
        assert (refused.status, refused.headers["proxy-authenticate"]) == (
            407,
            'Basic realm="robots_guard"',
        )
        alice = "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0\r\n"
        assert plain(integration, "http://robots.guard/ready", fields=alice).status == 200
    assert subprocess.run(
        command, check=False, timeout=PATIENCE, stderr=subprocess.DEVNULL
    ).returncode


def addons_of(script):
    """A script without its docstring."""
    tree = ast.parse(script)
    if ast.get_docstring(tree) is not None:
        tree.body = tree.body[1:]
    return ast.unparse(tree).replace("robots_guard.mitmproxy.addon", "robots_guard.mitmproxy")


def test_script_of_the_package_is_the_example():
    """Every mitmdump of these tests loads SCRIPT."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "robots_guard.mitmproxy"],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    example = (ROOT / "examples" / "mitmproxy_addon.py").read_text()

    assert done.stdout == f"{SCRIPT}\n"
    assert addons_of(SCRIPT.read_text()) == addons_of(example)


@pytest.mark.parametrize("page", ["README.md", "docs/proxy.md"])
def test_scripts_in_the_pages_are_the_example(page):
    """A page may also name the script of the package."""
    lines = re.findall(
        r"^\$ printf '(.*)' > robots_guard_addon.py$", (ROOT / page).read_text(), re.MULTILINE
    )
    example = (ROOT / "examples" / "mitmproxy_addon.py").read_text()

    assert lines or "python -m robots_guard.mitmproxy" in (ROOT / page).read_text()
    for line in lines:
        assert addons_of(line.replace("\\n", "\n")) == addons_of(example)
