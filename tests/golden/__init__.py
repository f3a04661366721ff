"""The golden record: what init writes, kept so that a rewrite of the source can be shown to change nothing.

``python -m golden --write``, from the folder ``tests``, records anew; ``test_golden.py`` compares.
"""
