"""Small models of the zoo, by name."""

from zoo.nets import ZOO


def make(name):
    """A model, always with the same values, and its example."""
    return ZOO[name].make(), ZOO[name].example


def pattern(name):
    """A pattern of what one would generate."""
    return ZOO[name].pattern
