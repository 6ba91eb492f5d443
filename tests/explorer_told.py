"""What is told to explorer_nodes, for the scripts that let memory run out in it."""


class Told:
    """What explorer_nodes asks."""

    def leaf(self, node):
        return '"label":"x","attrs":[]', '"graph"', True

    def target(self, target):
        return '"call"', ('"first"', '"second"')

    def space(self, text, node):
        return "a/b"

    def source(self, text, node):
        return ""

    def value(self, text, node):
        return '"f32"'
