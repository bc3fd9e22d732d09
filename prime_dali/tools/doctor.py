"""``prime-dali doctor``: what is built, installed and usable, and how to install the rest."""

from __future__ import annotations

import platform

from .. import __version__, _devices
from .._devices import Finding


def examine() -> list[Finding]:
    """Look at the package, its back ends and its optional companions. Never raises."""
    return _devices.examine(plugin)


def plugin(dali: Finding) -> Finding:
    """What is known of DALI's native operator; DALI is loaded when this is called."""
    from ..dali import native

    return native.finding(dali)


def report() -> str:
    """The findings as text for the terminal."""
    lines = [f"prime-dali {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    for finding in examine():
        lines.append(f"  [{'ok' if finding.usable else '--'}] {finding.what}: {finding.detail}")
        if not finding.usable and finding.advice:
            lines.append(f"       to get it: {finding.advice}")
    return "\n".join(lines)
