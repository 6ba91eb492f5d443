"""The passes as methods of a program, as a Graph has them: signature, weights and constants follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fastexport

if TYPE_CHECKING:
    from fastexport._errors import LintFault
    from fastexport._results import PassResult
    from fastexport._rewriting import Replacements


class ProgramPasses:
    """What programs have for passes; each is the function of the same name, which takes the program first."""

    def eliminate_dead_code(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.eliminate_dead_code`."""
        return fastexport.eliminate_dead_code(self, *args, **options)

    def eliminate_getitems(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.eliminate_getitems`."""
        return fastexport.eliminate_getitems(self, *args, **options)

    def eliminate_common_subexpressions(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.eliminate_common_subexpressions`."""
        return fastexport.eliminate_common_subexpressions(self, *args, **options)

    def remove_noops(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.remove_noops`."""
        return fastexport.remove_noops(self, *args, **options)

    def fold_constants(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.fold_constants`."""
        return fastexport.fold_constants(self, *args, **options)

    def sort_topologically(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.sort_topologically`."""
        return fastexport.sort_topologically(self, *args, **options)

    def trim_interfaces(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.trim_interfaces`."""
        return fastexport.trim_interfaces(self, *args, **options)

    def inline(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.inline`."""
        return fastexport.inline(self, *args, **options)

    def outline(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.outline`."""
        return fastexport.outline(self, *args, **options)

    def fuse(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.fuse`."""
        return fastexport.fuse(self, *args, **options)

    def propagate_shapes(self, *args: Any, **options: Any) -> Any:
        """See `fastexport.propagate_shapes`."""
        return fastexport.propagate_shapes(self, *args, **options)

    def refresh_fake_tensors(self, *args: Any, **options: Any) -> PassResult:
        """See `fastexport.refresh_fake_tensors`."""
        return fastexport.refresh_fake_tensors(self, *args, **options)

    def replace_pattern(self, *args: Any, **options: Any) -> Replacements:
        """See `fastexport.replace_pattern`."""
        return fastexport.replace_pattern(self, *args, **options)

    def replace_pattern_with_filters(self, *args: Any, **options: Any) -> Replacements:
        """See `fastexport.replace_pattern_with_filters`."""
        return fastexport.replace_pattern_with_filters(self, *args, **options)

    def lint(self, *args: Any, **options: Any) -> list[LintFault]:
        """See `fastexport.lint`."""
        return fastexport.lint(self, *args, **options)
