"""The pages in a real browser: switches, values on hover and by keyboard, dark mode, print, and no network."""

import shutil

import pytest
from playwright.sync_api import sync_playwright
from readings import BAD, EXPLODES, HOT, NOTE, diagnosis
from test_pages import EVIL, WORSE, evil_diagnosis, evil_run, long_run, run

from hyperfan.report import diagnosis_page, run_page, scale_chart

CHROMIUM = shutil.which("chromium")  # which is no Python package, so that no extra can bring it
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium, in Debian: apt install chromium")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page from disk; whatever it asks for, complains about or pops up makes the test fail."""
    contexts, wrong = [], []

    def open_page(content, name="page.html", **options):
        file = tmp_path / name
        file.write_text(content, encoding="utf-8")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: wrong.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def two_runs():
    return run_page([run("first", rows=long_run(1, 2)), run("second", rows=long_run(1, 2))])


@pytest.fixture(scope="module")
def ill():
    return diagnosis_page(diagnosis(BAD, [EXPLODES, HOT, NOTE]), {"torch": "2.13"})


def visible(page, selector):
    return page.locator(f"{selector}:visible").count()


def box(page, label):
    return page.get_by_role("checkbox", name=label, exact=True)


def test_switches_hide_runs_and_layers(opened, two_runs):
    page = opened(two_runs)
    lines, panels = visible(page, ".series"), visible(page, ".panel")
    box(page, "first").uncheck()
    assert visible(page, ".series") == lines / 2
    assert visible(page, ".panel") == panels
    box(page, "0").uncheck()
    assert panels - visible(page, ".panel") == 3 * (1 + 1 + 2 + 2)  # evolution and two histograms of all it has
    box(page, "first").check()
    box(page, "0").check()
    assert (visible(page, ".series"), visible(page, ".panel")) == (lines, panels)


def test_a_layer_switched_off_leaves_the_charts_and_tables_of_a_diagnosis(opened, ill):
    page = opened(ill)
    points, rows = visible(page, ".point"), visible(page, "tbody tr")
    box(page, "4").uncheck()
    assert points - visible(page, ".point") == 2  # activations and gradients
    assert rows - visible(page, "tbody tr") == 1


def test_values_show_on_hover(opened, ill):
    page = opened(ill)
    tooltip = page.get_by_role("status")
    assert tooltip.inner_text() == ""
    point = page.locator(".point").nth(1)
    point.scroll_into_view_if_needed()
    page.evaluate("new Promise(requestAnimationFrame)")  # what scrolling hides is hidden by then
    point.hover(force=True)
    assert tooltip.inner_text().splitlines() == ["measured", "2: 23.2 [22.2, 24.4], theory 0.6"]
    assert visible(page, ".cursor") == 1
    page.mouse.move(1, 1)
    assert tooltip.inner_text() == ""


def test_values_show_by_keyboard(opened, ill):
    page = opened(ill)
    tooltip = page.get_by_role("status")
    while not page.evaluate("document.activeElement.matches('.panels')"):
        page.keyboard.press("Tab")
    assert "0: 21.9" in tooltip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "2: 23.2" in tooltip.inner_text()
    page.keyboard.press("End")
    assert "10: 22 [" in tooltip.inner_text()
    page.keyboard.press("ArrowDown")  # the gradients beside it
    assert "10: 0.949 [" in tooltip.inner_text()
    page.keyboard.press("Home")
    assert "0: 10.3" in tooltip.inner_text()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Escape")
    assert tooltip.inner_text() == ""


def test_lines_tell_their_values_too(opened, two_runs):
    page = opened(two_runs)
    page.locator(".panels").first.focus()
    page.keyboard.press("ArrowRight")
    says = page.get_by_role("status").inner_text()
    assert says.startswith("first\nepoch 0.")
    box(page, "first").uncheck()
    page.locator(".panels").first.focus()
    page.keyboard.press("Home")
    assert page.get_by_role("status").inner_text().startswith("second\n")  # what is off is passed over


def test_dark_mode_changes_paper_ink_and_lines(opened, ill):
    seen = {}
    for scheme in ("light", "dark"):
        page = opened(ill, color_scheme=scheme)
        seen[scheme] = page.evaluate(
            "[getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.body).color,"
            " getComputedStyle(document.querySelector('.dot')).fill]"
        )
    assert seen["light"][0] == "rgb(255, 255, 255)"
    assert all(a != b for a, b in zip(seen["light"], seen["dark"], strict=True))


def test_print_is_white_and_without_switches_and_keeps_figures_whole(opened, ill):
    page = opened(ill, color_scheme="dark")
    assert visible(page, ".switches") == 1
    page.emulate_media(media="print", color_scheme="dark")
    assert visible(page, ".switches") == 0
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"


def test_without_javascript_all_is_drawn_and_no_switch_is_shown(opened, two_runs):
    page = opened(two_runs, java_script_enabled=False)
    assert visible(page, ".series") > 0
    assert visible(page, ".switches") == 0


def test_a_phone_shows_it_without_scrolling_sideways(opened, two_runs, ill):
    for content in (two_runs, ill):
        page = opened(content, viewport={"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_boxes_have_labels_and_pictures_descriptions(opened, two_runs):
    page = opened(two_runs)
    assert page.evaluate("[...document.querySelectorAll('input')].every((box) => box.labels[0].textContent)")
    described = "(svg) => svg.getAttribute('role') === 'img' ? svg.getAttribute('aria-label') : svg.ariaHidden"
    assert page.evaluate(f"[...document.querySelectorAll('svg')].every({described})")


@pytest.mark.parametrize("made", ["diagnosis", "runs"])
def test_hostile_names_show_and_do_nothing(opened, made):
    hostile = diagnosis_page(evil_diagnosis(), {EVIL: WORSE}) if made == "diagnosis" else run_page([evil_run()] * 2)
    page = opened(hostile)
    shown = page.locator("body").inner_text()
    assert EVIL in shown
    assert WORSE in shown
    page.locator(".series").first.scroll_into_view_if_needed()
    page.locator(".panels").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 0


def test_the_picture_alone_follows_dark_mode(opened):
    svg = scale_chart({"ours": diagnosis().layers, EVIL: diagnosis(BAD).layers}, title=WORSE)
    fills = set()
    for scheme in ("light", "dark"):
        page = opened(svg, "scale.svg", color_scheme=scheme)
        fills.add(page.evaluate("getComputedStyle(document.querySelector('.paper')).fill"))
        assert WORSE in page.locator(".headline").text_content()
    assert len(fills) == 2


def test_a_finding_is_as_large_as_any_other_whatever_its_severity(opened, ill):
    page = opened(ill)
    sizes = page.evaluate("[...document.querySelectorAll('.findings li')].map((li) => getComputedStyle(li).fontSize)")
    assert len(sizes) == 3
    assert len(set(sizes)) == 1
