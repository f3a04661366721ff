"""Checks: from evidence to findings.

Thresholds are factors that a healthy net of any width stays well within, and every comparison with a prediction also
asks that the sampling intervals exclude it.
"""
