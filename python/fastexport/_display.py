"""The base of what notebooks show as HTML.

Nothing of IPython is imported: it asks an object for its `_repr_mimebundle_`. What makes the HTML is imported then.
"""

from __future__ import annotations

from collections.abc import Collection


class Displayed:
    """What notebooks show as HTML: a class that `_views` has a view of, or for a base of it."""

    __slots__ = ()

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        from fastexport import _notebook

        return _notebook.mimebundle(self, include, exclude)

    def _repr_html_(self) -> str | None:
        from fastexport import _notebook

        return _notebook.mimebundle(self, ("text/html",)).get("text/html")
