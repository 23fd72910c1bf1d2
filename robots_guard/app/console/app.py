"""The pages and their addresses.

    /                   decisions over time
    /overview.json      the figures of the overview, for a page that updates itself
    /decisions          all decisions, filtered and sorted
    /decisions.csv      the same list as comma-separated values
    /decisions/ID       one decision with its robots.txt and its replay
    /decisions/ID/evidence.zip              all that is needed to check it elsewhere
    /fetches/WRITER/SEQ one fetch of a robots.txt
    /fetches/WRITER/SEQ/response.warc.gz    its response, as it was archived
    /origins            the origins in the store
    /origin?name=       one origin
    /origins/refresh    POST: fetch an origin's robots.txt
    /overrides          the operator's overrides
    /overrides/pin      the command that pins a robots.txt for an origin
    /try                the verdict on a URL

Invariant: pages are rendered on the server and complete without a script. Reading uses GET only.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Collection
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from robots_guard.app.console.access import AccessControl
from robots_guard.app.console.document import listing
from robots_guard.app.console.markup import TEMPLATES, moment
from robots_guard.app.console.pages.decision import (
    Case,
    ResponseCase,
    case_of,
    details_of,
    response_case_of,
    response_details_of,
    write_evidence,
)
from robots_guard.app.console.pages.decisions import (
    CSV_ROWS,
    DecisionPage,
    count_decisions,
    csv_of,
    extent_of,
    read_csv_page,
    read_page,
)
from robots_guard.app.console.pages.fetch import archived_response, details_of_fetch, fetch_of
from robots_guard.app.console.pages.origins import (
    DAY,
    TREND,
    Origins,
    Refusals,
    look_up,
    most_refused,
    next_turn_of,
    recorded_purposes,
    refusals_of,
    try_url,
)
from robots_guard.app.console.pages.overrides import STATES, OverrideUse, PinForm, rows, uses_of
from robots_guard.app.console.pages.overview import Differences
from robots_guard.app.console.query import (
    ACTIONS,
    PERIODS,
    REASONS,
    SORTS,
    DecisionQuery,
    absolute,
    filter_in,
    origin_in,
    parse_query,
    since,
)
from robots_guard.app.console.snapshots import NoSnapshot, Snapshots
from robots_guard.app.console.sources import Refresh, Sources
from robots_guard.audit.bundle.archive import bundle_name
from robots_guard.audit.privacy import key_in
from robots_guard.audit.read.reader import COMPONENTS, Filter
from robots_guard.audit.record import Fetch
from robots_guard.audit.record import moment as as_recorded
from robots_guard.audit.show.chart import NARROW, Chart, ChartBar, chart
from robots_guard.audit.show.overview import overview, timeline_of
from robots_guard.audit.show.policy import facts
from robots_guard.audit.show.sentence import sentence_of
from robots_guard.errors import RobotsGuardError, SettingsError, StoreError
from robots_guard.invocation import EVIDENCE, RECORDS
from robots_guard.protocol.dialect import DIALECTS

LARGEST_FORM = 8192  # bytes
NOT_SHOWN = "This cannot be shown"
LONGEST_URL = 16_384  # characters of a URL to try

# How the period before is called.
PRECEDING = {
    "1h": "the hour before",
    "24h": "the 24 hours before",
    "7d": "the 7 days before",
    "30d": "the 30 days before",
}
_CHOICES = {"actions": ACTIONS, "reasons": REASONS, "components": COMPONENTS, "sorts": SORTS}
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
) -> AccessControl:
    """Return the console as an ASGI application; the caller closes it.

    `hosts` are the Host values that it answers to, such as ``{"127.0.0.1:8099", "localhost:8099"}``. With `read_only`
    nothing can be changed and no token is needed: the integration in front decides which clients may read. Otherwise
    `token` is required, and `refresh`, if given, fetches an origin's robots.txt. Raises SettingsError if a required
    token is missing.
    """
    if not read_only and not token:
        raise SettingsError("the console has no token: give a token, or read_only=True")
    console = Console(
        sources,
        read_only=read_only,
        refresh=None if read_only else refresh,
    )
    routes = [
        Route("/", console.overview),
        Route("/overview.json", console.live),
        Route("/decisions", console.decisions),
        Route("/decisions.csv", console.decisions_csv),
        Route("/decisions/{identity:path}/evidence.zip", console.evidence),
        Route("/decisions/{identity:path}", console.decision),
        Route("/fetches/{writer:path}/{seq:int}/response.warc.gz", console.fetch_response),
        Route("/fetches/{writer:path}/{seq:int}", console.fetch),
        Route("/origins", console.origins),
        Route("/origin", console.origin),
        Route("/overrides", console.overrides),
        Route("/overrides/pin", console.pin),
        Route("/try", console.try_),
        Mount("/static", StaticFiles(packages=[("robots_guard.app.console", "static")])),
    ]
    if not read_only:
        routes.insert(0, Route("/origins/refresh", console.refresh, methods=["POST"]))
    pages = Starlette(
        routes=routes,
        lifespan=console.lifespan,
        exception_handlers={RobotsGuardError: console.problem, HTTPException: console.missing},
    )
    names = [host.lower() for host in hosts]
    return AccessControl(pages, hosts=names, token=token, read_only=read_only, close=console.close)


class Console:
    """The handlers of all pages."""

    def __init__(
        self,
        sources: Sources,
        *,
        read_only: bool,
        refresh: Refresh | None,
    ) -> None:
        self._sources = sources
        self._read_only = read_only
        self._refresh = refresh
        self._snapshots = Snapshots(sources.audit_log, sources.clocks)
        self._origins = Origins(sources)
        self._differences = Differences(sources.store)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Close the files at shutdown."""
        yield
        self.close()

    def close(self) -> None:
        """Close the files. A later request opens them again."""
        self._snapshots.close()

    # -- decisions --------------------------------------------------------------------------------------------

    def overview(self, request: Request) -> Response:
        """Show decisions over time."""
        figures = self._figures(request)
        return self._page(
            request, "overview.html", "overview", status=_status(figures["nothing"]), **figures
        )

    def live(self, request: Request) -> Response:
        """Return the figures of the overview as JSON, for a page that updates itself."""
        figures = self._figures(request)
        markup = self._render("figures.html", request, **figures)
        return JSONResponse({"figures": markup, "made": moment(self._sources.clocks.now())})

    def _figures(self, request: Request) -> dict[str, Any]:
        now = self._sources.clocks.now()
        period = request.query_params.get("period", "24h")
        begins, until = since(period, now), as_recorded(now) or ""
        shown: dict[str, Any] = {
            "period": period,
            "periods": PERIODS,
            "since": begins,
            "preceding": PRECEDING.get(period, ""),
        }
        nothing = self._snapshots.why_empty()
        if nothing:
            return {**shown, "nothing": nothing}
        with self._snapshots.newest() as snapshot:
            figures = snapshot.cached(
                ("overview", begins), lambda search: overview(search, begins, until)
            )
            bars = figures.timeline.bars
            latest = None if bars else snapshot.cached("latest", _latest)
            trouble = str(snapshot.trouble)
        return {
            **shown,
            "nothing": None,
            "figures": figures,
            "charts": _charts(bars),
            "changes": [*map(self._differences.explain, figures.news.changes)]
            if figures.news
            else [],
            "latest": latest,
            "trouble": trouble,
        }

    def decisions(self, request: Request) -> Response:
        """List the decisions that match the query, a page at a time."""
        try:
            query = self._query(request)
        except SettingsError as error:
            return self._mistake_page(request, str(error))
        nothing = self._snapshots.why_empty()
        values: dict[str, Any] = {"query": query, "nothing": nothing, "csv_rows": CSV_ROWS}
        values |= {"mistake": "", **_CHOICES}
        if nothing:
            values |= {"page": None, "count": 0, "trouble": "", "status": _status(nothing)}
            return self._page(request, "decisions.html", "decisions", **values)
        with self._snapshots.newest() as snapshot:
            found = snapshot.cached(
                ("page", query.cache_key), lambda search: read_page(search, query)
            )
            number = snapshot.cached(
                ("count", query.wanted), lambda search: count_decisions(search, query)
            )
            values |= {"page": found, "count": number, "trouble": str(snapshot.trouble)}
            if not number:
                values["extent"] = snapshot.cached("extent", extent_of)
        return self._page(request, "decisions.html", "decisions", **values)

    def _mistake_page(self, request: Request, mistake: str) -> Response:
        """Say what is wrong with a filter, above the filter as the user wrote it, to be corrected."""
        query = DecisionQuery(filter_in(request.query_params), Filter())
        values: dict[str, Any] = {"query": query, "mistake": mistake, "nothing": None}
        values |= {"status": 400, "trouble": "", **_CHOICES}
        return self._page(request, "decisions.html", "decisions", **values)

    def decisions_csv(self, request: Request) -> Response:
        """Send the decisions that match the query as comma-separated values."""
        query = self._query(request)
        nothing = self._snapshots.why_empty()
        if nothing:
            raise HTTPException(_status(nothing, 404), nothing.message)
        return StreamingResponse(
            csv_of(self._read_csv_page, query._replace(key=None, backwards=False)),
            media_type="text/csv",
            headers=_as_file("robots_guard-decisions.csv"),
        )

    def _query(self, request: Request) -> DecisionQuery:
        """Return the query in an address, with the key by which a URL is found whose values were hashed."""
        query = parse_query(request.query_params, self._sources.clocks.now())
        if query.wanted.url is None:
            return query
        return query.with_key(key_in(self._sources.audit_log))

    def _read_csv_page(self, query: DecisionQuery) -> DecisionPage:
        """Read the next rows for a file. Other pages are answered between two reads."""
        with self._snapshots.newest() as snapshot:
            return read_csv_page(snapshot.search, query)

    def decision(self, request: Request) -> Response:
        """Show one decision."""
        identity = request.path_params["identity"]
        nothing, case = self._snapshots.why_empty(), None
        if nothing is None:
            with self._snapshots.newest() as snapshot:
                case = snapshot.cached(("case", identity), lambda search: _case(search, identity))
        if nothing and nothing.lost:
            raise HTTPException(503, nothing.message)
        if case is None:
            raise HTTPException(404, f"There is no record {identity[:80]!r} in the audit log.")
        shown: dict[str, Any] = {
            "raw": msgspec.json.format(case.record.line_of_json(), indent=2).decode(),
            "sentence": sentence_of(case.record),
            "address": str(request.url.replace(query=None, fragment=None)),
        }
        if isinstance(case, ResponseCase):
            about = response_details_of(case, self._sources.clocks.now())
            return self._page(request, "response.html", "decisions", details=about, **shown)
        details = details_of(case, self._sources)
        return self._page(request, "decision.html", "decisions", details=details, **shown)

    def evidence(self, request: Request) -> Response:
        """Send the evidence of a decision."""
        identity, target = request.path_params["identity"], io.BytesIO()
        write_evidence(target, identity, self._sources)
        name = bundle_name(identity)
        return Response(target.getvalue(), media_type="application/zip", headers=_as_file(name))

    def fetch(self, request: Request) -> Response:
        """Show one fetch of a robots.txt."""
        record = self._find_fetch(request)
        details = details_of_fetch(record, self._sources)
        raw = msgspec.json.format(record.line_of_json(), indent=2).decode()
        return self._page(request, "fetch.html", "decisions", details=details, raw=raw)

    def fetch_response(self, request: Request) -> Response:
        """Send the archived response of a fetch."""
        record = self._find_fetch(request)
        data = archived_response(record, self._sources.audit_log)
        if data is None:
            raise HTTPException(404, "The response to this fetch is not archived.")
        name = f"response-{record.seq}.warc.gz"
        return Response(data, media_type="application/warc", headers=_as_file(name))

    def _find_fetch(self, request: Request) -> Fetch:
        """Return the fetch that the address names. Raises HTTPException."""
        writer, number = request.path_params["writer"], request.path_params["seq"]
        nothing, found = self._snapshots.why_empty(), None
        if nothing is None:
            with self._snapshots.newest() as snapshot:
                found = snapshot.cached(
                    ("fetch", writer, number), lambda search: fetch_of(search, writer, number)
                )
        if nothing and nothing.lost:
            raise HTTPException(503, nothing.message)
        if found is None:
            raise HTTPException(404, "There is no such fetch in the audit log.")
        return found

    # -- origins ----------------------------------------------------------------------------------------------

    def origins(self, request: Request) -> Response:
        """List the origins in the store, a page at a time."""
        part, after, sort = (
            request.query_params.get(name, "").strip() for name in ("part", "after", "sort")
        )
        if sort not in ("", "refusals"):
            raise SettingsError(f"sort = {sort[:40]!r} is not known: use refusals, or none")
        store = self._sources.store
        values: dict[str, Any] = {
            "part": part,
            "sort": sort,
            "refusals": {},
            "days": TREND,
            "found": None,
            "next": "",
            "count": 0,
            "trouble": "",
        }
        if store is None:
            return self._page(request, "origins.html", "origins", **values)
        try:
            first = self._most_refused() if sort else ()
            names, next_after, number = self._origins.page(store, part.lower(), after, first)
        except StoreError as error:
            values["trouble"] = f"The store {error}."
            return self._page(request, "origins.html", "origins", status=503, **values)
        found = look_up(self._sources, *names)
        values |= {"after": after, "found": found, "next": next_after, "count": number}
        values["refusals"] = self._refusals([str(each) for each in names])
        return self._page(request, "origins.html", "origins", **values)

    def _most_refused(self) -> list[str]:
        """Return the origins by the number of refusals; none if there is no audit log."""
        if self._snapshots.why_empty():
            return []
        day = self._sources.clocks.now() // DAY
        with self._snapshots.newest() as snapshot:
            return snapshot.cached(
                ("most refused", day), lambda search: most_refused(search, (day + 1) * DAY)
            )

    def _refusals(self, names: list[str]) -> dict[str, Refusals]:
        """Return the refusals of these origins; none if there is no audit log."""
        if self._snapshots.why_empty():
            return {}
        day = self._sources.clocks.now() // DAY
        with self._snapshots.newest() as snapshot:
            return snapshot.cached(
                ("refusals", day, *names),
                lambda search: refusals_of(search, (day + 1) * DAY, names),
            )

    def origin(self, request: Request) -> Response:
        """Show one origin: its policy, its next turn and the decisions there."""
        (it,) = look_up(
            self._sources, origin_in(absolute(request.query_params.get("name", "").strip()))
        )
        agent = request.query_params.get("agent", "").strip() or self._sources.agent
        next_turn, trouble = None, it.trouble
        try:
            next_turn = next_turn_of(self._sources, it, agent)
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
            **self._decided(str(it.origin)),
            listing=listing(it.rules.body, None) if it.rules else None,
            facts=[*facts(it.view, moment)] if it.view else [],
            just_fetched=request.query_params.get("asked") == "now",
        )

    def _decided(self, origin: str) -> dict[str, Any]:
        """Return the decisions on an origin over time and the versions of its robots.txt, or why
        they cannot be shown."""
        nothing = self._snapshots.why_empty()
        if nothing:
            return {"nothing": nothing, "timeline": None, "charts": [], "history": None}
        with self._snapshots.newest() as snapshot:
            timeline = snapshot.cached(
                ("origin", origin), lambda search: timeline_of(search, Filter(origin=origin))
            )
            versions = snapshot.cached(
                ("versions", origin), lambda search: self._differences.history(search, origin)
            )
        return {
            "nothing": None,
            "timeline": timeline,
            "charts": _charts(timeline.bars),
            "history": self._differences.explained(origin, versions),
        }

    async def refresh(self, request: Request) -> Response:
        """Fetch an origin's robots.txt now."""
        form = await _read_form(request)
        if self._refresh is None:
            raise HTTPException(409, "To fetch robots.txt files, start the console with --agent.")
        origin = origin_in(form.get("origin", ""))
        await self._refresh(origin)
        self._origins.forget()
        query = urlencode({"name": str(origin), "asked": "now"})
        return RedirectResponse(f"{request.scope.get('root_path', '')}/origin?{query}", 303)

    # -- overrides and trying a URL ---------------------------------------------------------------------------

    def overrides(self, request: Request) -> Response:
        """List the operator's overrides."""
        found = rows(self._sources.exceptions(), self._sources.clocks.now())
        counts = {state: sum(row.state == state for row in found) for state in STATES}
        return self._page(
            request,
            "overrides.html",
            "overrides",
            file=self._sources.overrides,
            rows=found,
            counts=counts,
            uses=self._uses(),
        )

    def pin(self, request: Request) -> Response:
        """Make the command that pins a robots.txt for an origin. The console itself changes nothing."""
        form = PinForm.of(request.query_params)
        command = None
        if form.is_complete:
            command = self._sources.invocation.command(*form.words(), needs=("overrides",))
        return self._page(
            request,
            "pin.html",
            "overrides",
            form=form,
            command_line=command,
            file=self._sources.overrides,
        )

    def _uses(self) -> dict[str, OverrideUse]:
        """Return what the overrides let through; nothing if there is no audit log."""
        if self._snapshots.why_empty():
            return {}
        with self._snapshots.newest() as snapshot:
            return snapshot.cached("uses", uses_of)

    def try_(self, request: Request) -> Response:
        """Show the verdict on a URL."""
        url = request.query_params.get("url", "").strip()
        agent = request.query_params.get("agent", "").strip() or self._sources.agent
        name = request.query_params.get("dialect", "").strip()
        if len(url) > LONGEST_URL:
            raise SettingsError(
                f"the URL is longer than {LONGEST_URL} characters: no integration accepts a URL of this length"
            )
        purposes = request.query_params.get("purposes")
        if purposes is None:
            purposes = self._purposes()
        result = None
        if url:
            result = try_url(self._sources, absolute(url), agent[:256], name, purposes[:256])
        given: dict[str, Any] = {
            "url": url,
            "agent": agent,
            "dialect": name,
            "dialects": [*DIALECTS],
            "purposes": purposes,
        }
        return self._page(request, "try.html", "try", result=result, **given)

    def _purposes(self) -> str:
        """Return the purposes of the integrations: those in the settings, else those that were recorded last."""
        if self._sources.terms.purposes or self._snapshots.why_empty():
            return self._sources.terms.purposes
        with self._snapshots.newest() as snapshot:
            return snapshot.cached("purposes", recorded_purposes)

    # -- rendering --------------------------------------------------------------------------------------------

    def problem(self, request: Request, error: Exception) -> Response:
        """Show what could not be read or done."""
        return self._page(
            request, "problem.html", "", status=400, title=NOT_SHOWN, message=str(error)
        )

    def missing(self, request: Request, error: Exception) -> Response:
        """Show an HTTP error, such as a page that does not exist."""
        assert isinstance(error, HTTPException)
        message = "There is no such page." if error.detail == "Not Found" else error.detail
        title = {404: "Not found", 503: NOT_SHOWN}.get(error.status_code, "Not done")
        return self._page(
            request, "problem.html", "", status=error.status_code, title=title, message=message
        )

    def _page(
        self, request: Request, template: str, here: str, *, status: int = 200, **values: Any
    ) -> Response:
        return HTMLResponse(self._render(template, request, here=here, **values), status)

    def _command(self, *words: str) -> str:
        """A command that reads the audit log that is shown, and the store."""
        needs = EVIDENCE if "bundle" in words else RECORDS
        return self._sources.invocation.command(*words, needs=needs)

    def _render(self, template: str, request: Request, **values: Any) -> str:
        return TEMPLATES.get_template(template).render(
            root=request.scope.get("root_path", ""),
            navigation=NAVIGATION,
            audit_log=self._sources.audit_log,
            command=self._command,
            read_only=self._read_only,
            can_refresh=self._refresh is not None,
            now=self._sources.clocks.now(),
            **values,
        )


def _charts(bars: list[ChartBar]) -> list[Chart]:
    """The chart for wide screens and paper, and the one for narrow screens."""
    return [chart(bars), chart(bars, NARROW)]


def _case(search: Any, identity: str) -> Case | ResponseCase | None:
    """The case of the decision with this id, on a request or a response."""
    return case_of(search, identity) or response_case_of(search, identity)


def _status(nothing: NoSnapshot | None, otherwise: int = 200) -> int:
    """Return the status of a page that shows records, or of one without any."""
    if nothing and nothing.lost:
        return 503
    return otherwise


def _as_file(name: str) -> dict[str, str]:
    """Return the header fields of a response that the browser stores as a file."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _latest(search: Any) -> str | None:
    rows = [*search.rows('SELECT max("at") FROM decisions')]
    latest: str | None = rows[0][0] if rows else None
    return latest


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException if it is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            raise HTTPException(413, "This form is too large.")
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
