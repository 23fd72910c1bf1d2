"""Python imports this module at its start, if its folder is in PYTHONPATH. It adds the add-on to
Scrapy's default settings when these are imported, in each process that a test starts, too."""

import sys
import tempfile
from importlib.machinery import PathFinder

SETTINGS = {
    "ADDONS": {"robots_guard.scrapy.Addon": 500},
    "ROBOTS_GUARD_AGENT": "mybot",
    "ROBOTS_GUARD_AUDIT_LOG": tempfile.gettempdir() + "/robots_guard_upstream",
    "ROBOTS_GUARD_CONFIG": "",
    "ROBOTS_GUARD_MAX_IDLE": 1,  # seconds: of a site that is down, the suite expects one failure
    "ROBOTS_GUARD_STORE": "memory:",
}


class _Switch(PathFinder):
    """Finds the module of the default settings, and changes it when it has been executed."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "scrapy.settings.default_settings":
            return None
        sys.meta_path.remove(cls)
        spec = super().find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            vars(module).update(SETTINGS)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Switch)
