"""The forms of what `check` finds. Each has `write(reports, sources, quiet)`, which goes through the reports once."""
