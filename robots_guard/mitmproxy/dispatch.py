"""Dispatch: addons called by what they handle.

Half of mitmproxy's work for a request is asking some thirty addons, a dozen times, whether they have a hook. Here
that is asked once a hook, and again when addons come or go or an option changes. All that is known of how
mitmproxy calls its addons is known here.

An addon may halt a hook (AddonHalt): those behind it do not hear of it. Whoever is `unhaltable` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import addonmanager, exceptions, flow, hooks

Handlers = list[Callable[..., Any]]


def quicken(manager: addonmanager.AddonManager) -> None:
    """Make a manager of mitmproxy's own one of ours; somebody else's is left as it is."""
    if type(manager) is addonmanager.AddonManager:
        manager.__class__ = Addons
        manager.forget()  # type: ignore[attr-defined]  # it is one of ours now


class Addons(addonmanager.AddonManager):
    """Finds the handlers of a hook once. They are called in the order of the chain, as mitmproxy calls them."""

    _handlers: dict[str, Handlers]
    _walked: tuple[int, int]

    def forget(self) -> None:
        """Handlers may have come or gone."""
        self._handlers = {}
        self._walked = self._walk()

    def _walk(self) -> tuple[int, int]:
        return id(self.chain), len(self.chain)

    def register(self, addon: Any) -> Any:
        """As mitmproxy's own."""
        self.forget()
        return super().register(addon)  # type: ignore[no-untyped-call]  # mitmproxy's has no annotations

    def remove(self, addon: Any) -> None:
        """As mitmproxy's own."""
        self.forget()
        super().remove(addon)  # type: ignore[no-untyped-call]  # likewise

    def trigger(self, event: hooks.Hook) -> None:
        """What is called without waiting is a change of options, or rarer still."""
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
        """A hook of a flow is followed by `update`, if anybody wants that."""
        arguments = event.args()
        await self._call(event, arguments)
        if isinstance(arguments[0], flow.Flow) and self._of("update"):
            await self.trigger_event(hooks.UpdateHook([arguments[0]]))

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call the handlers."""
        await self._call(event, event.args())

    async def _call(self, event: hooks.Hook, arguments: Any) -> None:
        halted = False
        for handler in self._of(event.name):
            if halted and not _is_unhaltable(getattr(handler, "__self__", None)):
                continue
            try:
                result = handler(*arguments)
                if result is not None and inspect.isawaitable(result):
                    await result
            except exceptions.AddonHalt:
                halted = True
            except Exception:  # told as mitmproxy tells it
                with addonmanager.safecall():
                    raise

    def _of(self, name: str) -> Handlers:
        if self._walked != self._walk():
            self.forget()
        handlers = self._handlers.get(name)
        if handlers is None:
            handlers = self._handlers[name] = list(self._find(name))
        return handlers

    def _find(self, name: str) -> Handlers:
        found = (getattr(addon, name, None) for addon in addonmanager.traverse(self.chain))
        return [handler for handler in found if callable(handler)]


def _is_unhaltable(addon: object) -> bool:
    return getattr(addon, "unhaltable", False) is True
