"""The pages and their addresses.

    /                   what was decided, over time
    /overview.json      its figures, for a page that is open
    /decisions          all decisions, filtered and sorted
    /decisions/ID       one, its file, its replay
    /origins            what is held
    /origin?name=       one origin
    /origins/refresh    POST: ask an origin anew
    /overrides          the exceptions
    /try                what would be said of a URL

The law of this file: a page is made on the server and whole without a script. Reading needs no more than GET.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlencode

import jinja2
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from robots_guard.audit.record import moment as as_recorded
from robots_guard.console import text
from robots_guard.console.asked import ACTIONS, DOORS, PERIODS, REASONS, SORTS, absolute, asked, origin_in, since
from robots_guard.console.chart import chart
from robots_guard.console.decision import case_of, shown
from robots_guard.console.decisions import count, page
from robots_guard.console.exceptions import STATES, rows
from robots_guard.console.gate import Gate, form_token, is_form_token
from robots_guard.console.listing import listing
from robots_guard.console.meanings import MEANINGS
from robots_guard.console.origins import Origins, held, turn
from robots_guard.console.overview import overview
from robots_guard.console.snapshots import Nothing, Snapshots
from robots_guard.console.sources import Refresh, Sources
from robots_guard.console.trying import tried
from robots_guard.errors import RobotsGuardError, SettingsError, StoreError
from robots_guard.plain import span
from robots_guard.rep.dialect import DIALECTS

LARGEST_FORM = 8192  # octets
NOT_SHOWN = "This cannot be shown"
LONGEST_URL = 16_384  # characters of a URL to try

NAVIGATION = (
    ("overview", "/", "Overview"),
    ("decisions", "/decisions", "Decisions"),
    ("origins", "/origins", "Origins"),
    ("overrides", "/overrides", "Overrides"),
    ("try", "/try", "Try a URL"),
)


def app(
    sources: Sources,
    *,
    hosts: Collection[str],
    token: str = "",
    read_only: bool = False,
    refresh: Refresh | None = None,
) -> Gate:
    """The console as an ASGI application, which is to be closed in the end.

    `hosts` are the Host values it answers to, as in ``{"127.0.0.1:8099", "localhost:8099"}``. With `read_only` there
    is no token and nothing can be changed: for a door that lets in only who may read. Else `token` must be given, and
    `refresh`, if there is one, asks an origin anew. Raises SettingsError without a token where one is needed.
    """
    if not read_only and not token:
        raise SettingsError("the console has no token: give one, or read_only=True")
    console = Console(sources, token="" if read_only else token, refresh=None if read_only else refresh)
    routes = [
        Route("/", console.overview),
        Route("/overview.json", console.live),
        Route("/decisions", console.decisions),
        Route("/decisions/{identity:path}", console.decision),
        Route("/origins", console.origins),
        Route("/origin", console.origin),
        Route("/overrides", console.overrides),
        Route("/try", console.try_),
        Mount("/static", StaticFiles(packages=[("robots_guard.console", "static")])),
    ]
    if not read_only:
        routes.insert(0, Route("/origins/refresh", console.refresh, methods=["POST"]))
    made = Starlette(
        routes=routes,
        lifespan=console.lifespan,
        exception_handlers={RobotsGuardError: console.problem, HTTPException: console.missing},
    )
    names = [host.lower() for host in hosts]
    return Gate(made, hosts=names, token=token, read_only=read_only, close=console.close)


class Console:
    """All pages over the same sources."""

    def __init__(self, sources: Sources, *, token: str, refresh: Refresh | None) -> None:
        self._sources = sources
        self._token = token
        self._refresh = refresh
        self._snapshots = Snapshots(sources.journal, sources.clocks)
        self._origins = Origins(sources)
        self._templates = _templates()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Let the files go in the end."""
        yield
        self.close()

    def close(self) -> None:
        """Let the files go. Who asks later opens them again."""
        self._snapshots.close()

    # -- what was decided -------------------------------------------------------------------------------------

    def overview(self, request: Request) -> Response:
        """What was decided, over time."""
        figures = self._figures(request)
        return self._page(request, "overview.html", "overview", status=_status(figures["nothing"]), **figures)

    def live(self, request: Request) -> Response:
        """The overview's parts, for a page that is open."""
        figures = self._figures(request)
        markup = self._render("figures.html", request, **figures)
        return JSONResponse({"figures": markup, "made": text.moment(self._sources.clocks.now())})

    def _figures(self, request: Request) -> dict[str, Any]:
        now = self._sources.clocks.now()
        period = request.query_params.get("period", "24h")
        begins, until = since(period, now), as_recorded(now) or ""
        shown: dict[str, Any] = {"period": period, "periods": PERIODS, "since": begins}
        nothing = self._snapshots.nothing()
        if nothing:
            return {**shown, "nothing": nothing}
        with self._snapshots.now() as snapshot:
            figures = snapshot.once(("overview", begins), lambda search: overview(search, begins, until))
            latest = None if figures.bars else snapshot.once("latest", _latest)
            trouble = str(snapshot.trouble)
        return {
            **shown,
            "nothing": None,
            "figures": figures,
            "chart": chart(figures.bars) if figures.bars else None,
            "latest": latest,
            "trouble": trouble,
        }

    def decisions(self, request: Request) -> Response:
        """All decisions that are asked for, a page at a time."""
        wanted = asked(request.query_params, self._sources.clocks.now())
        choices: dict[str, Any] = {"actions": ACTIONS, "reasons": REASONS, "doors": DOORS, "sorts": SORTS}
        nothing = self._snapshots.nothing()
        values: dict[str, Any] = {
            "asked": wanted,
            "nothing": nothing,
            "page": None,
            "count": 0,
            "trouble": "",
            **choices,
        }
        if nothing:
            return self._page(request, "decisions.html", "decisions", status=_status(nothing), **values)
        with self._snapshots.now() as snapshot:
            found = snapshot.once(("page", wanted.wanted, wanted[2:]), lambda search: page(search, wanted))
            number = snapshot.once(("count", wanted.wanted), lambda search: count(search, wanted))
            values |= {"page": found, "count": number, "trouble": str(snapshot.trouble)}
        return self._page(request, "decisions.html", "decisions", **values)

    def decision(self, request: Request) -> Response:
        """One decision."""
        identity = request.path_params["identity"]
        nothing, case = self._snapshots.nothing(), None
        if nothing is None:
            with self._snapshots.now() as snapshot:
                case = snapshot.once(("case", identity), lambda search: case_of(search, identity))
        if nothing and nothing.lost:
            raise HTTPException(503, nothing.says)
        if case is None:
            raise HTTPException(404, f"There is no record {identity[:80]!r} in the journal.")
        raw = msgspec.json.format(case.record.line_of_json(), indent=2).decode()
        return self._page(
            request, "decision.html", "decisions", shown=shown(case, self._sources), raw=raw, means=MEANINGS
        )

    # -- what is held -----------------------------------------------------------------------------------------

    def origins(self, request: Request) -> Response:
        """What is held, a page at a time."""
        part, after = (request.query_params.get(name, "").strip() for name in ("part", "after"))
        store = self._sources.store
        values: dict[str, Any] = {"part": part, "found": None, "next": "", "count": 0, "trouble": ""}
        if store is None:
            return self._page(request, "origins.html", "origins", **values)
        try:
            names, behind, number = self._origins.page(store, part.lower(), after)
        except StoreError as error:
            values["trouble"] = f"The store {error}."
            return self._page(request, "origins.html", "origins", status=503, **values)
        found = held(self._sources, *names)
        values |= {"after": after, "found": found, "next": behind, "count": number}
        return self._page(request, "origins.html", "origins", **values)

    def origin(self, request: Request) -> Response:
        """One origin."""
        (it,) = held(self._sources, origin_in(absolute(request.query_params.get("name", "").strip())))
        agent = request.query_params.get("agent", "").strip() or self._sources.agent
        next_turn, trouble = None, it.trouble
        try:
            next_turn = turn(self._sources, it, agent)
        except StoreError as error:
            trouble = trouble or f"the store {error}"
        return self._page(
            request,
            "origin.html",
            "origins",
            it=it,
            trouble=trouble,
            turn=next_turn,
            agent=agent,
            **self._counts(str(it.origin)),
            listing=listing(it.rules.body, None) if it.rules else None,
            asked_now=request.query_params.get("asked") == "now",
        )

    def _counts(self, origin: str) -> dict[str, Any]:
        """What was decided there, and why nothing can be told of it."""
        nothing = self._snapshots.nothing()
        if nothing:
            return {"nothing": nothing, "counts": []}
        with self._snapshots.now() as snapshot:
            found = snapshot.once(
                ("origin", origin),
                lambda search: [
                    *search.rows(
                        "SELECT action, reason, count(*) FROM decisions WHERE origin = ? GROUP BY ALL ORDER BY 3 DESC",
                        [origin],
                    )
                ],
            )
        return {"nothing": None, "counts": found}

    async def refresh(self, request: Request) -> Response:
        """Ask an origin for its robots.txt now."""
        form = await _form(request)
        if not is_form_token(form.get("form", ""), self._token):
            raise HTTPException(403, "This form is not from this console, or from before its last start.")
        if self._refresh is None:
            raise HTTPException(409, "Start the console with --agent to ask origins: they are told who asks.")
        origin = origin_in(form.get("origin", ""))
        await self._refresh(origin)
        self._origins.forget()
        query = urlencode({"name": str(origin), "asked": "now"})
        return RedirectResponse(f"{request.scope.get('root_path', '')}/origin?{query}", 303)

    # -- the operator's side ----------------------------------------------------------------------------------

    def overrides(self, request: Request) -> Response:
        """The exceptions as they stand."""
        found = rows(self._sources.exceptions(), self._sources.clocks.now())
        counts = {state: sum(row.state == state for row in found) for state in STATES}
        return self._page(
            request, "overrides.html", "overrides", file=self._sources.overrides, rows=found, counts=counts
        )

    def try_(self, request: Request) -> Response:
        """What would be said of a URL."""
        url = request.query_params.get("url", "").strip()
        agent = request.query_params.get("agent", "").strip() or self._sources.agent
        name = request.query_params.get("dialect", "").strip()
        if len(url) > LONGEST_URL:
            raise SettingsError(f"the URL is longer than {LONGEST_URL} characters: no door would be asked for it")
        result = tried(self._sources, absolute(url), agent[:256], name) if url else None
        given: dict[str, Any] = {"url": url, "agent": agent, "dialect": name, "dialects": [*DIALECTS]}
        return self._page(request, "try.html", "try", tried=result, means=MEANINGS, **given)

    # -- making a page ----------------------------------------------------------------------------------------

    def problem(self, request: Request, error: Exception) -> Response:
        """What could not be read, or not be done."""
        return self._page(request, "problem.html", "", status=400, title=NOT_SHOWN, says=str(error))

    def missing(self, request: Request, error: Exception) -> Response:
        """What is not there."""
        assert isinstance(error, HTTPException)
        says = "There is no such page." if error.detail == "Not Found" else error.detail
        title = {404: "Not found", 503: NOT_SHOWN}.get(error.status_code, "Not done")
        return self._page(request, "problem.html", "", status=error.status_code, title=title, says=says)

    def _page(self, request: Request, template: str, here: str, *, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._render(template, request, here=here, **values), status)

    def _render(self, template: str, request: Request, **values: Any) -> str:
        return self._templates.get_template(template).render(
            root=request.scope.get("root_path", ""),
            navigation=NAVIGATION,
            journal=self._sources.journal,
            read_only=not self._token,
            can_refresh=self._refresh is not None,
            form=form_token(self._token) if self._token else "",
            now=self._sources.clocks.now(),
            **values,
        )


def _status(nothing: Nothing | None) -> int:
    return 503 if nothing and nothing.lost else 200


def _latest(search: Any) -> str | None:
    rows = [*search.rows('SELECT max("at") FROM decisions')]
    return rows[0][0] if rows else None


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form. Raises HTTPException for what is none."""
    octets = b""
    async for piece in request.stream():
        octets += piece
        if len(octets) > LARGEST_FORM:
            raise HTTPException(413, "This form is too large.")
    return {name: values[0] for name, values in parse_qs(octets.decode("utf-8", "replace")).items()}


def _templates() -> jinja2.Environment:
    place = files("robots_guard.console").joinpath("templates")
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: place.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=text.visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "cut": text.cut,
        "kind": text.kind,
        "number": text.number,
        "at": text.at,
        "moment": text.moment,
        "span": span,
        "query": urlencode,
    }
    made.filters.update(filters)
    return made
