"""A coordinate check as a page: findings first, then the scale of every layer over sizes, then all numbers."""

from collections.abc import Mapping
from types import MappingProxyType

from hyperfan.charts.axis import digits
from hyperfan.charts.coordinates import NOTE, coordinate_panels
from hyperfan.charts.html import findings, table
from hyperfan.charts.markup import tag, text
from hyperfan.probe.coordinates import CoordinateCheck
from hyperfan.report.page import compared, figure, page, section

BY_SIZE = "Root mean squares over those of plain nets: the layer farthest from them, at each size."


def coordinate_page(check: CoordinateCheck, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """A self-contained HTML page."""
    caption = f"Root mean square of each layer over that of plain nets, on logarithmic axes. {NOTE}"
    sizes = check.size_table(lambda value: "–" if value is None else digits(value))
    body = [
        tag("h1", text(check.net)),
        tag("p", text(check.summary), class_="lead"),
        section("Findings", findings(check.findings)),
        section("Scale by size", figure(caption, coordinate_panels(check.panels()), "Scale by size", wide=True)),
        section("How scales go with the size", table(*check.trend_table())),
        section("Sizes", tag("p", text(BY_SIZE), class_="soft"), table(*sizes)),
    ]
    if environment:
        body.append(section("Environment", compared([environment], ["value"])))
    return page(check.net, body)
