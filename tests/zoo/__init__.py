"""The zoo: nets that were designed elsewhere, each read, started, diagnosed, trained, frozen and saved.

``python -m zoo`` in ``tests/`` tries all of them and writes ``docs/zoo.md``.
"""
