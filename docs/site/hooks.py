"""Hooks of the docs site: pages from elsewhere in the repository, links between them, and rendered maths.

Every page is written with links that work in the repository. Here a link to another page becomes one to its place in
the site; a link to any other file of the repository becomes one to a copy in the site: of Python as a page, of a
folder of pictures as a gallery.
"""

import html
import os
import re
import sys
from pathlib import Path, PurePosixPath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import reference

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages outside of docs/, and their places in the site; those of results/ beside them."""
LINK = re.compile(r"(\]\()([^)\s#]*)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
OUTLINE = re.compile(r"^\*Outline: .*\*\n\n", re.MULTILINE)
"""What a page that is filled in here tells those who read it in the repository."""
GENERATED = re.compile(r"<!-- generated: (\w+) -->")
NORM = "&#x02016;"
"""The bars of ‖h‖."""
MATHS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated or lie elsewhere, and what any page links to."""
    sources = ELSEWHERE | {str(p.relative_to(ROOT)): _results(p) for p in (ROOT / "results").glob("**/README.md")}
    for source, place in sources.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    config.extra["generated"], pictures = generated()
    for name, picture in pictures.items():
        files.append(File.generated(config, f"reference/findings/{name}", content=picture))
    places = sources | {
        f"docs/{f.src_uri}": f.src_uri for f in files if f.generated_by is None and f.src_uri[-3:] != ".py"
    }
    config.extra["places"] = places
    for source in [s for s in places if s.endswith(".md")]:
        text = FENCE.sub("", (ROOT / source).read_text(encoding="utf-8"))
        for _, target, _ in LINK.findall(text):
            path = _resolve(source, target)
            if path is not None and path not in places:
                places[path] = _copy(path, files, config)
    return files


def generated() -> tuple[dict[str, str], dict[str, str]]:
    """What stands for ``<!-- generated: name -->``, and the pictures in it."""
    findings, pictures = reference.findings()
    made = {"findings": findings, "mistakes": reference.usual_mistakes(), "gains": reference.gain_table()}
    return made | {"methods": reference.init_methods(), "commands": reference.commands()}, pictures


def _results(page: Path) -> str:
    return str(page.relative_to(ROOT).with_name("index.md"))


def _resolve(source: str, target: str) -> str | None:
    """The path in the repository that a link means; None for addresses and places on the same page."""
    if not target or re.match(r"[a-z]+:", target):
        return None
    return os.path.normpath(PurePosixPath(source).parent / target)


def _copy(path: str, files: Files, config: MkDocsConfig) -> str:
    """Put a file of the repository into the site, and return its place there; a missing one is left to mkdocs."""
    source = ROOT / path
    if source.is_dir():
        place, title = f"{path}/index.md", source.name.replace("-", " ").capitalize()
        pictures = sorted(p for p in source.iterdir() if p.suffix in (".svg", ".png"))
        for p in pictures:
            if f"{path}/{p.name}" not in files.src_uris:  # also linked by itself
                files.append(File.generated(config, f"{path}/{p.name}", abs_src_path=str(p)))
        shown = (f"## {p.stem.replace('-', ' ')}\n![{p.stem.replace('-', ' ')}]({p.name})" for p in pictures)
        files.append(File.generated(config, place, content="\n\n".join([f"# {title}", *shown])))
    elif source.suffix == ".py":
        place = f"source/{path}.md"
        code = source.read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=f"# {path}\n\n```python\n{code}```\n"))
    else:
        place = path
        if source.is_file() and place not in files.src_uris:
            files.append(File.generated(config, place, abs_src_path=str(source)))
    return place


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and point links at the places of their targets in the site."""
    places = config.extra["places"]
    source = next((s for s, place in places.items() if place == page.file.src_uri and s.endswith(".md")), None)
    if source is None:
        return markdown

    def place(match: re.Match[str]) -> str:
        path = _resolve(source, match[2])
        if path is None:
            return match[0]
        found = os.path.relpath(places[path], PurePosixPath(page.file.src_uri).parent)
        return match[1] + found + match[3]

    kept = FENCE.findall(markdown)
    parts = [LINK.sub(place, part) for part in FENCE.split(markdown)]
    markdown = OUTLINE.sub("", "".join(part + fence for part, fence in zip(parts, [*kept, ""], strict=True)))
    return GENERATED.sub(lambda match: config.extra["generated"][match[1]], markdown)


def on_page_content(content: str, **_: object) -> str:
    """Render maths as MathML, which browsers show without a script."""

    def render(match: re.Match[str]) -> str:
        block = match[1] == "div"
        maths = convert(html.unescape(match[2].strip()), display="block" if block else "inline")
        maths = maths.replace(f"<mo>{NORM}</mo>", f'<mo stretchy="false">{NORM}</mo>')
        return f'<div class="maths" tabindex="0" role="group" aria-label="formula">{maths}</div>' if block else maths

    return MATHS.sub(render, content)
