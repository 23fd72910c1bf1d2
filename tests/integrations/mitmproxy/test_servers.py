"""The live matrix: what common servers serve for each spelling of a private path.

Each server gets the requests without the proxy first, to show that the matrix is effective; then through it. Under
`strict` nothing private is served; under `standard` only by spellings that the specifications call another path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from integrations.mitmproxy.conftest import get
from integrations.mitmproxy.test_evasion import SPELLINGS, target_bytes
from integrations.mitmproxy.wire import closed, tunnel
from support.programs import TOMCAT as CATALINA
from support.programs import program
from support.waiting import eventually

SECRET = b"the private page"
ROWS = [row for row in SPELLINGS if row["rule"] == "Disallow: /private/"]

NGINX = """
pid {place}/nginx.pid; error_log stderr crit;
events {{}}
http {{
  access_log off;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  server {{ listen 127.0.0.1:{port}; root {place}/www; }}
}}
"""
APACHE = """
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
Listen 127.0.0.1:{port}
ServerName 127.0.0.1
PidFile {place}/apache.pid
ErrorLog /dev/null
User www-data
Group www-data
DocumentRoot {place}/www
"""
LIGHTTPD = """
server.document-root = "{place}/www"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "/dev/null"
"""
AIOHTTP = (
    "from aiohttp import web; app = web.Application(); app.router.add_static('/', '{place}/www'); "
    + ("web.run_app(app, host='127.0.0.1', port={port}, print=None)")
)
# As people write it: what most static servers on Node do with a URL, by one of its parsers.
NODE = """
const fs = require("fs"), http = require("http"), path = require("path"), url = require("url");
http.createServer((request, response) => {{
  const answer = (error, content) => response.writeHead(error ? 404 : 200).end(error ? "" : content);
  try {{
    const name = decodeURIComponent({parsed}.pathname);
    fs.readFile(path.join("{place}/www", path.normalize(name)), answer);
  }} catch (error) {{
    answer(error);
  }}
}}).listen({port}, "127.0.0.1");
"""
PARSED = {
    "node": 'new URL(request.url, "http://localhost")',
    "node url.parse": "url.parse(request.url)",
    "node url.parse with hosts": "url.parse(request.url, false, true)",
}
# The one file of `jdk.httpserver`, which came as a command with Java 18. Java 11 runs a source file as it is.
JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.*;

public class Server {{
    public static void main(String[] arguments) throws Exception {{
        Path root = Path.of("{place}/www");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", {port}), 0);
        server.createContext("/", exchange -> {{
            Path file = root.resolve("." + exchange.getRequestURI().getPath()).normalize();
            boolean found = file.startsWith(root) && Files.isRegularFile(file);
            byte[] content = found ? Files.readAllBytes(file) : new byte[0];
            exchange.sendResponseHeaders(found ? 200 : 404, found ? content.length : -1);
            if (found) exchange.getResponseBody().write(content);
            exchange.close();
        }});
        server.start();
    }}
}}
"""
TOMCAT = """
<Server port="-1"><Service name="Catalina">
  <Connector port="{port}" address="127.0.0.1" />
  <Engine name="Catalina" defaultHost="localhost">
    <Host name="localhost" appBase="{place}" deployOnStartup="false"><Context path="" docBase="{place}/www" /></Host>
  </Engine>
</Service></Server>
"""
TOMCAT_WEB = """
<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0">
  <servlet>
    <servlet-name>default</servlet-name>
    <servlet-class>org.apache.catalina.servlets.DefaultServlet</servlet-class>
  </servlet>
  <servlet-mapping><servlet-name>default</servlet-name><url-pattern>/</url-pattern></servlet-mapping>
</web-app>
"""


def commands(place: Path, port: int) -> dict[str, list[str]]:
    modules = "/usr/lib/apache2/modules"
    (place / "conf").mkdir()
    for name, text in (
        ("nginx.conf", NGINX),
        ("apache.conf", APACHE),
        ("lighttpd.conf", LIGHTTPD),
        ("Server.java", JAVA),
        ("conf/server.xml", TOMCAT),
        ("conf/web.xml", TOMCAT_WEB),
    ):
        (place / name).write_text(text.format(place=place, port=port, modules=modules))
    for name, parsed in PARSED.items():
        (place / f"{name}.js").write_text(NODE.format(place=place, port=port, parsed=parsed))
    www = str(place / "www")
    return {
        "nginx": ["nginx", "-p", str(place), "-c", str(place / "nginx.conf"), "-g", "daemon off;"],
        "apache2": ["apache2", "-d", str(place), "-f", str(place / "apache.conf"), "-DFOREGROUND"],
        "lighttpd": ["lighttpd", "-D", "-f", str(place / "lighttpd.conf")],
        **{name: ["node", str(place / f"{name}.js")] for name in PARSED},
        "caddy": ["caddy", "file-server", "--root", www, "--listen", f"127.0.0.1:{port}"],
        "jdk": ["java", str(place / "Server.java")],
        "tomcat": [CATALINA, "run"],
        "aiohttp": [sys.executable, "-c", AIOHTTP.format(place=place, port=port)],
        "http.server": [
            sys.executable,
            *f"-m http.server {port} --bind 127.0.0.1 --directory {www}".split(),
        ],
    }


class Server:
    """A server with the attributes that `get` of conftest needs."""

    scheme = "http"

    def __init__(self, port: int) -> None:
        self.authority = f"127.0.0.1:{port}"
        self.url = f"http://{self.authority}"

    def send(self, connection: socket.socket, target: bytes) -> bytes:
        connection.sendall(b"GET " + target + f" HTTP/1.1\r\nHost: {self.authority}\r\n".encode())
        connection.sendall(b"Connection: close\r\n\r\n")
        return closed(connection)


@contextlib.contextmanager
def serving(name: str) -> Iterator[Server]:
    # The servers' own users must be able to read it.
    place = Path(tempfile.mkdtemp(prefix="robots-guard-"))
    place.chmod(0o755)
    for path, content in (
        ("private/x", SECRET),
        ("open", b"open"),
        ("robots.txt", b"User-agent: *\nDisallow: /private/\n"),
    ):
        (place / "www" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "www" / path).write_bytes(content)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = commands(place, port)[name]
    environment = os.environ | {"CATALINA_BASE": str(place)}
    process = subprocess.Popen(
        [program(command[0]), *command[1:]],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: _accepts(port), despite=OSError)
        yield Server(port)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(place)


def _accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)):
        return True


SERVERS = [
    "nginx",
    "apache2",
    "lighttpd",
    "caddy",
    "tomcat",
    "jdk",
    "aiohttp",
    "http.server",
    *PARSED,
]


@pytest.fixture(scope="module", params=SERVERS)
def server(request):
    with serving(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def strict_integration(start):
    with start("proxy", matching="strict") as integration:
        yield integration


def served(server, open_connection):
    """The rows whose spelling is answered with the private page."""
    found = []
    for row in ROWS:
        with open_connection() as connection:
            if SECRET in server.send(connection, target_bytes(row)):
                found.append(row)
    return found


def test_spellings_that_a_server_reads_as_the_private_page(
    server, integrations, strict_integration
):
    host, _, port = server.authority.partition(":")
    bare = served(server, lambda: socket.create_connection((host, int(port)), timeout=60))
    assert len(bare) >= 15
    assert get(integrations["proxy"], server, "/open").status == 200

    assert served(server, lambda: tunnel(strict_integration, server.authority, tls=False)) == []
    leaked = served(server, lambda: tunnel(integrations["proxy"], server.authority, tls=False))
    assert [row["id"] for row in leaked if row["expected_by_profile"]["standard"] == "block"] == []
