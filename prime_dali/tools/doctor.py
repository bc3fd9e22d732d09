"""``prime-dali doctor``: what is built, installed and usable, and how to install the rest."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from .. import __version__, _extras, _findings
from .._findings import Finding

_PURPOSES = {
    "demo": "gallery, augment, demo",
    "train": "train, corrupt, evaluate, analyze",
    "formats": "data sets in TFRecord, Parquet and Arrow",
    "torchvision": "prime_dali.v2",
    "timm": "prime_dali.integrations.timm",
    "lightning": "prime_dali.integrations.lightning",
    "huggingface": "prime_dali.integrations.huggingface",
    "ray": "prime_dali.ray",
}


def examine() -> list[Finding]:
    """Look at the package, its back ends and its optional companions. Never raises."""
    return _findings.examine(plugin)


def plugin(dali: Finding) -> Finding:
    """What is known of DALI's native operator; DALI is loaded when this is called."""
    from ..dali import native

    return native.finding(dali)


def extras() -> list[Finding]:
    """Whether the packages of the extras are there that commands and the modules for training libraries need."""
    found = []
    for extra, purpose in _PURPOSES.items():
        missing = _extras.missing(extra)
        detail = f"missing: {', '.join(missing)}" if missing else f"complete, for {purpose}"
        found.append(Finding(f"extra {extra!r}", not missing, detail, _extras.install(extra)))
    return found


def report() -> str:
    """The findings as text for the terminal; the last line is the verdict."""
    lines = [f"prime-dali {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    found = [*examine(), *extras()]
    for finding in found:
        lines.append(f"  [{'ok' if finding.usable else '--'}] {finding.what}: {finding.detail}")
        if not finding.usable and finding.advice:
            lines.append(f"       to get it: {finding.advice}")
    return "\n".join([*lines, verdict(found)])


def verdict(found: Sequence[Finding]) -> str:
    """What all findings come to, in a line; without the first one, the CPU back end, nothing works."""
    if not found[0].usable:
        return f"verdict: not usable; {found[0].what}: {found[0].advice}"
    lacking = [finding.what for finding in found if not finding.usable]
    return f"verdict: usable; not available here: {', '.join(lacking)}" if lacking else "verdict: all is usable"
