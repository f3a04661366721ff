"""Processes that train one net: what they gather, compare, and hold in parts."""
