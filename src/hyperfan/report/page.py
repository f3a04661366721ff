"""One self-contained HTML page: a sentence, tables, pictures. Whatever a name contains, it is shown, not run."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem }}
  img {{ max-width: 100%; background: white }}
  figure {{ margin: 1.5rem 0 }}
  td, th {{ text-align: left; padding: .1rem 1rem .1rem 0 }}
  .lead {{ font-size: 1.2rem }}
  pre {{ overflow-x: auto; line-height: 1.3 }}
</style>
<h1>{title}</h1>
<p class="lead">{summary}</p>
{text}
{figures}
{tables}
</html>
"""


def page(
    title: str,
    summary: str,
    figures: Sequence[tuple[str, Path]],
    tables: Mapping[str, Mapping[str, Any]],
    text: str = "",
) -> str:
    """The page, with its pictures inside it.

    Args:
        title: of the page.
        summary: what happened, in one sentence.
        figures: what each shows, and where its PNG is.
        tables: names and values under a heading.
        text: shown as it is, with its spaces, above the figures.
    """
    return PAGE.format(
        title=escape(title),
        summary=escape(summary),
        text=f"<pre>{escape(text)}</pre>" if text else "",
        figures="\n".join(_figure(caption, png) for caption, png in figures),
        tables="\n".join(_table(heading, rows) for heading, rows in tables.items()),
    )


def _figure(caption: str, png: Path) -> str:
    data = base64.b64encode(png.read_bytes()).decode()
    return f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}"></figure>'


def _table(heading: str, rows: Mapping[str, Any]) -> str:
    cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items())
    return f"<h2>{escape(heading)}</h2>\n<table>{cells}</table>"
