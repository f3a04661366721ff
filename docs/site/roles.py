"""Docstrings name other objects as ``:class:`Name```; the site shows the name."""

import re

from griffe import Docstring, Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")


class Roles(Extension):
    """Replace the roles in every docstring by plain code."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring = Docstring(
                ROLE.sub(r"`\1`", obj.docstring.value),
                lineno=obj.docstring.lineno,
                endlineno=obj.docstring.endlineno,
                parent=obj,
                parser=obj.docstring.parser,
                parser_options=obj.docstring.parser_options,
            )
