"""Network namespaces for `test_machines.py`:
`unshare --net --mount python -m integrations.mitmproxy.machines MODE DIR`.

MODE is `transparent` or `wireguard`. Runs a proxy in that mode, a site, and a curl without proxy settings; prints
what the curl saw and the site received as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import trustme
from integrations.mitmproxy.origin import RULES
from integrations.mitmproxy.process import Integration, proxy, upstream_ca
from support.programs import program
from support.waiting import eventually

from robots_guard.testing import Loopback

ADDRESS = "10.9.0.1"  # of the site
GATEWAY, CLIENT = "10.9.1.1", "10.9.1.2"
URLS = (
    "http://site.test/open",
    "http://site.test/private/x",
    "https://site.test/open",
    "https://site.test/private/x",
    f"http://{ADDRESS}/private/x",
)
UPLOAD = "GET /private/x HTTP/1.1\r\nHost: site.test\r\n\r\n"  # of unknown length: the site must see its end
REDIRECT = (  # as in docs/proxy.md, but for the port
    "iptables -t nat -A OUTPUT -p tcp -m owner --uid-owner nobody -m multiport --dports 80,443 -j REDIRECT --to-ports",
    "iptables -A OUTPUT -p udp -m owner --uid-owner nobody --dport 443 -j REJECT",
)


def run(line: str) -> None:
    command = line.split()
    subprocess.run([program(command[0]), *command[1:]], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def transparent(folder: Path) -> Iterator[tuple[Integration, list[str]]]:
    """A client whose connections from user `nobody` to ports 80 and 443 are redirected to the proxy."""
    options = ["--mode", "transparent", *upstream_ca("proxy", folder / "site.pem")]
    with proxy(
        folder / "proxy", options, allow_private="10.9.0.0/16,127.0.0.1/32", audit="all"
    ) as integration:
        run(f"{REDIRECT[0]} {integration.port}")
        run(REDIRECT[1])
        yield integration, ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]


@contextlib.contextmanager
def wireguard(folder: Path) -> Iterator[tuple[Integration, list[str]]]:
    """Another machine, with nothing but a tunnel that ends in the proxy."""
    with subprocess.Popen(
        [program("unshare"), "--net", program("sh"), "-c", "echo; exec cat"], **PIPES
    ) as machine:
        machine.stdout.readline()
        inside = f"nsenter --target {machine.pid} --net"
        run(f"ip link add v0 type veth peer name v1 netns {machine.pid}")
        run(f"ip addr add {GATEWAY}/24 dev v0")
        run("ip link set v0 up")
        for line in ("ip link set lo up", f"ip addr add {CLIENT}/24 dev v1", "ip link set v1 up"):
            run(f"{inside} {line}")
        options = [
            "--mode",
            "wireguard",
            "--listen",
            f"{GATEWAY}:51820",
            *upstream_ca("proxy", folder / "site.pem"),
        ]
        with proxy(
            folder / "proxy", options, allow_private="10.9.0.0/16,127.0.0.1/32", audit="all"
        ) as integration:
            (folder / "tunnel.conf").write_text(
                _without_addresses(integration.folder / "ca" / "wireguard-client.conf")
            )
            with tunnel(inside):
                run(f"{inside} wg setconf wg0 {folder / 'tunnel.conf'}")
                run(f"{inside} ip addr add 10.0.0.1/32 dev wg0")
                run(f"{inside} ip link set wg0 up")
                run(f"{inside} ip route add {ADDRESS} dev wg0")
                yield integration, inside.split()
        machine.stdin.close()


@contextlib.contextmanager
def tunnel(inside: str) -> Iterator[None]:
    """A WireGuard interface of a process, because not every kernel has its own."""
    run("mount -t tmpfs tmpfs /run")  # hides the sockets of other interfaces
    command = [*inside.split(), program("wireguard-go"), "wg0"]
    with subprocess.Popen(
        command, env=os.environ | {"WG_PROCESS_FOREGROUND": "1"}, stderr=subprocess.DEVNULL
    ) as process:
        try:
            eventually(Path("/run/wireguard/wg0.sock").exists)
            yield
        finally:
            process.terminate()


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def _without_addresses(settings: Path) -> str:
    """`wg setconf` reads less than `wg-quick`, which would change the resolver of the whole machine."""
    return "".join(line for line in settings.open() if not line.startswith(("Address", "DNS")))


def fetch(client: list[str], url: str, *more: str, upload: str | None = None) -> str:
    form = "%{http_code} %header{robots-guard}"
    curl = [
        program("curl"),
        "-s",
        "-m",
        "20",
        "-o",
        "/dev/null",
        "-w",
        form,
        "--cacert",
        "/mnt/ca.pem",
    ]
    resolved = [part for port in (80, 443) for part in ("--resolve", f"site.test:{port}:{ADDRESS}")]
    command = [program(client[0]), *client[1:], *curl, *resolved, *more, url]
    return subprocess.run(command, capture_output=True, text=True, input=upload, check=False).stdout


def serving(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.test", ADDRESS).configure_cert(context)
    return context


def main(mode: str, folder: Path) -> dict[str, object]:
    run("ip link set lo up")
    run(f"ip addr add {ADDRESS}/32 dev lo")
    (folder / "hosts").write_text(
        f"127.0.0.1 localhost\n{ADDRESS} site.test\n127.0.0.1 proxy.test\n{GATEWAY} proxy.test\n"
    )
    run(f"mount --bind {folder / 'hosts'} /etc/hosts")
    # User `nobody` may not read the folder of the tests.
    run("mount -t tmpfs -o mode=755 tmpfs /mnt")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "site.pem")
    with Loopback() as net:
        plain = net.origin(RULES, address=ADDRESS, port=80)
        secure = net.origin(RULES, address=ADDRESS, port=443, tls=serving(authority))
        with {"transparent": transparent, "wireguard": wireguard}[mode](folder) as (
            integration,
            client,
        ):
            run(f"cp {integration.ca} /mnt/ca.pem")
            answers = {url: fetch(client, url) for url in URLS}
            answers["an upload"] = fetch(
                client, "https://site.test/upload", "--http2", "-T", "-", upload=UPLOAD
            )
            answers["another name"] = fetch(
                client, "http://site.test/private/y", "-H", "Host: elsewhere.test"
            )
            answers["itself"] = fetch(client, f"http://proxy.test:{integration.port}/x")
            recorded = [record["url"] for record in integration.records()]
        uploads = [
            request.body.decode() for request in secure.received if request.target == "/upload"
        ]
        seen = {"plain": plain.targets, "secure": secure.targets, "uploads": uploads}
        return {"answers": answers, "recorded": recorded, **seen}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
