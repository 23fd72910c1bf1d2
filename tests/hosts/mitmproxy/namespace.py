"""A machine of its own, for `test_transparent.py`: `unshare --net --mount python -m hosts.mitmproxy.namespace DIR`.

Everything the user `nobody` sends to ports 80 and 443 is led to a `robots-guard proxy --mode transparent`, as
docs/proxy.md says. Prints what nobody's curl saw and what the site received, as JSON.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path

import trustme
from hosts.mitmproxy.origin import RULES
from hosts.mitmproxy.process import Door, proxy, upstream_ca
from support.programs import program

from robots_guard.testing import Loopback

ADDRESS = "127.7.0.1"
ASKED = (
    "http://site.test/open",
    "http://site.test/private/x",
    "https://site.test/open",
    "https://site.test/private/x",
    f"http://{ADDRESS}/private/x",
)


def serving(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.test", ADDRESS).configure_cert(context)
    return context


def run(*command: str) -> None:
    subprocess.run([program(command[0]), *command[1:]], check=True, stdout=subprocess.DEVNULL)


REDIRECT = (  # as in docs/proxy.md, but for the port
    "iptables -t nat -A OUTPUT -p tcp -m owner --uid-owner nobody -m multiport --dports 80,443 -j REDIRECT --to-ports",
    "iptables -A OUTPUT -p udp -m owner --uid-owner nobody --dport 443 -j REJECT",
)


def redirect(door: Door) -> None:
    run(*REDIRECT[0].split(), str(door.port))
    run(*REDIRECT[1].split())


def asked(door: Door, url: str, *more: str) -> str:
    form = "%{http_code} %header{robots-guard}"
    curl = [program("curl"), "-s", "-m", "20", "-o", "/dev/null", "-w", form, "--cacert", "/mnt/ca.pem"]
    resolved = [part for port in (80, 443) for part in ("--resolve", f"site.test:{port}:{ADDRESS}")]
    nobody = [program("setpriv"), "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
    done = subprocess.run([*nobody, *curl, *resolved, *more, url], capture_output=True, text=True, check=False)
    return done.stdout


def main(folder: Path) -> dict[str, object]:
    run("ip", "link", "set", "lo", "up")
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} site.test\n")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/mnt")  # nobody may not read our folder
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "site.pem")
    with Loopback() as net:
        plain = net.origin(RULES, address=ADDRESS, port=80)
        secure = net.origin(RULES, address=ADDRESS, port=443, tls=serving(authority))
        options = ["--mode", "transparent", *upstream_ca("proxy", folder / "site.pem")]
        with proxy(folder / "proxy", options, audit_passes="all") as door:
            redirect(door)
            run("cp", str(door.ca), "/mnt/ca.pem")
            answers = {url: asked(door, url) for url in ASKED}
            answers["another name"] = asked(door, "http://site.test/private/y", "-H", "Host: elsewhere.test")
            return {
                "answers": answers,
                "plain": plain.targets,
                "secure": secure.targets,
                "recorded": [record["url"] for record in door.records()],
            }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
