"""`AddonManager` calls the handlers of a hook; the replacement caches them.

For each request, mitmproxy asks about thirty addons a dozen times whether they handle a hook, which
is half of its work. With this patch it does so once per hook, and again when addons are added or
removed or an option changes. The patch does not replace methods of the class; it changes the class
of the master's own manager.

AddonHalt stops a hook for later addons, except for those marked `unhaltable`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from mitmproxy import addonmanager, exceptions, flow, hooks

from robots_guard.gateway.patch import Patch, method

Handler = Callable[..., Any]
Rest = Coroutine[Any, Any, None]

_BEGUN = "robots_guard_begun"  # the attribute of a hook with what remains of it


def cache_handlers(manager: addonmanager.AddonManager) -> None:
    """Turn mitmproxy's own manager into an `Addons`. Another program's subclass is left as it is."""
    if type(manager) is addonmanager.AddonManager:
        manager.__class__ = Addons
        manager.forget()  # type: ignore[attr-defined]  # it is an `Addons` now


class Addons(addonmanager.AddonManager):
    """An addon manager that looks up the handlers of a hook once.

    It calls them in the same order as mitmproxy.
    """

    _handlers: dict[str, list[Handler]]
    _walked: tuple[int, int]

    def forget(self) -> None:
        """Clear the cache: handlers may have been added or removed."""
        self._handlers = {}
        self._walked = self._walk()

    def _walk(self) -> tuple[int, int]:
        return id(self.chain), len(self.chain)

    def register(self, addon: Any) -> Any:
        """Register an addon and clear the cache."""
        self.forget()
        return super().register(addon)  # type: ignore[no-untyped-call]  # mitmproxy's has no annotations

    def remove(self, addon: Any) -> None:
        """Remove an addon and clear the cache."""
        self.forget()
        super().remove(addon)  # type: ignore[no-untyped-call]  # likewise

    def trigger(self, event: hooks.Hook) -> None:
        """Call the handlers synchronously, uncached.

        mitmproxy does so for a change of options and rarer events.
        """
        self.forget()
        halted = False
        for addon in self.chain:
            if halted and not _is_unhaltable(addon):
                continue
            try:
                with addonmanager.safecall():
                    self.invoke_addon_sync(addon, event)
            except exceptions.AddonHalt:
                halted = True

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        """Call the handlers of a hook, or await what remains after `begin`. After a hook of a flow,
        those of `update` are called, too."""
        if _BEGUN not in vars(event):
            self.begin(event, event.args())
        rest = vars(event).pop(_BEGUN)
        if rest is not None:
            await rest

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call the handlers of a hook."""
        rest = self._run(iter(self._of(event.name)), event.args())
        if rest is not None:
            await rest

    def begin(self, event: hooks.Hook, arguments: list[Any]) -> Rest | None:
        """Call the handlers as `handle_lifecycle` does, until one of them has to wait. `arguments`
        are those of the event.

        Returns a coroutine for what remains, None if nothing does. It must not be awaited here: the
        caller passes the same event to `handle_lifecycle`, which awaits it and calls no handler
        again.
        """
        rest = self._run(iter(self._of(event.name)), arguments)
        if isinstance(arguments[0], flow.Flow) and self._of("update"):
            rest = self._update(rest, arguments[0])
        vars(event)[_BEGUN] = rest
        return rest

    async def _update(self, rest: Rest | None, updated: flow.Flow) -> None:
        if rest is not None:
            await rest
        await self.trigger_event(hooks.UpdateHook([updated]))

    def _run(
        self, handlers: Iterator[Handler], arguments: list[Any], *, halted: bool = False
    ) -> Rest | None:
        """Call handlers until one of them has to wait. Returns a coroutine for the rest, None if
        there is none."""
        for handler in handlers:
            if halted and not _is_unhaltable(getattr(handler, "__self__", None)):
                continue
            try:
                result = handler(*arguments)
            except exceptions.AddonHalt:
                halted = True
            except Exception:  # mitmproxy's `safecall` logs it
                with addonmanager.safecall():
                    raise
            else:
                if result is not None and inspect.isawaitable(result):
                    return self._continue(result, handlers, arguments, halted=halted)
        return None

    async def _continue(
        self,
        waiting: Awaitable[Any],
        handlers: Iterator[Handler],
        arguments: list[Any],
        *,
        halted: bool,
    ) -> None:
        """Await what a handler has returned, and call the handlers after it."""
        try:
            await waiting
        except exceptions.AddonHalt:
            halted = True
        except Exception:
            with addonmanager.safecall():
                raise
        rest = self._run(handlers, arguments, halted=halted)
        if rest is not None:
            await rest

    def _of(self, name: str) -> list[Handler]:
        if self._walked != self._walk():
            self.forget()
        handlers = self._handlers.get(name)
        if handlers is None:
            handlers = self._handlers[name] = list(self._find(name))
        return handlers

    def _find(self, name: str) -> list[Handler]:
        found = (getattr(addon, name, None) for addon in addonmanager.traverse(self.chain))
        return [handler for handler in found if callable(handler)]


def _is_unhaltable(addon: object) -> bool:
    return getattr(addon, "unhaltable", False) is True


PATCHES = (
    Patch(
        owner=addonmanager.AddonManager,
        methods=(
            method("register", "01ddcca314ee"),
            method("remove", "2e93aab2204a"),
            method("trigger", "b19e37ceb209"),
            method("handle_lifecycle", "38c97e792d1d"),
            method("trigger_event", "b763c59bc499"),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="Half of a request's CPU time goes into the search for handlers; AddonHalt skips the guard.",
        report="""\
Cache the handlers of each hook.

For each of a request's dozen hooks, `AddonManager` walks through about thirty addons and looks the
hook up in each of them. That is half of the CPU time of a request in a mitmdump without addons of
its own.

To see it: profile a mitmdump that serves small requests; `_iter_hooks` and `traverse` come first.

A dictionary of handlers by hook, emptied when an addon is registered or removed and before each
`configure` hook, saves most of it.
""",
    ),
)
