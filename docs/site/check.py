"""Check the built site: ``python docs/site/check.py site``.

No dead link or anchor, nothing loaded from a network, every picture described, one first heading a page and no level
left out.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What one page holds that is to be checked."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.levels: list[int] = []
        self.undescribed: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found[key] or "" for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"] or "")
        if "src" in found or tag == "link":
            self.loaded.append(found.get("src") or found.get("href") or "")
        if tag == "img" and not found.get("alt"):
            self.undescribed.append(found.get("src") or "")
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.levels.append(int(tag[1]))


def faults(site: Path) -> list[str]:
    """All that is wrong, a line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loaded and parts.scheme != "data":
                    found.append(f"{name} loads {address}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            anchors = next((p.anchors for key, p in pages.items() if key.resolve() == target), None)
            if not target.exists() or (parts.fragment and anchors and unquote(parts.fragment) not in anchors):
                found.append(f"{name} leads to {address}, which is not there")
        found += [f"{name} does not describe {src}" for src in page.undescribed]
        steps = zip(page.levels, page.levels[1:], strict=False)
        if page.levels.count(1) != 1 or any(b > a + 1 for a, b in steps):
            found.append(f"{name} has headings of levels {page.levels}")
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print("\n".join(wrong) or "the site is whole")
    sys.exit(bool(wrong))
