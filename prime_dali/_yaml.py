"""YAML of settings, as ``yaml.safe_load`` reads it, but that a key that comes twice is an error."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["load"]


def load(text: str) -> Any:
    """The content of a document.

    Raises:
        ValueError: It is not YAML, or a mapping in it has a key twice; the message has the line.
    """
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():  # super() refuses others
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} comes twice", key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)
