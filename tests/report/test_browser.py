"""The page in headless Chromium: drawn, silent, alone, and usable by mouse, keyboard and phone."""

import shutil

import pytest

from entropy_mcmc.report.command import write_report
from run.workers import TRUSTED

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    *("--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'"
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt install chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """Addresses of the page of one image run, one regression, and three runs compared."""
    folder = tmp_path_factory.mktemp("pages")
    chosen = {
        "one": ["emcmc"],
        "regression": ["regression"],
        "good": ["good"],
        "worse": ["worse"],
        "brief": ["brief"],
        "three": ["emcmc", "sgld", "regression"],
    }
    return {
        name: write_report(
            [runs[run] for run in of], output=folder / f"{name}.html", trust=TRUSTED
        ).as_uri()
        for name, of in chosen.items()
    }


@pytest.fixture
def visit(browser, pages):
    """Open a page; at the end nothing was said on the console and no request was made."""
    contexts, heard, asked = [], [], []

    def build(name, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(pages[name])
        return page

    yield build
    for context in contexts:
        context.close()
    assert not heard
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert sum(url.startswith("file:") for url in asked) == len(contexts)


BOXES = """() => [...document.querySelectorAll('svg.chart')]
  .filter(svg => svg.checkVisibility())
  .map(svg => {
    const own = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll('.series')].map(part => {
      const box = part.getBBox();
      return {width: box.width, height: box.height};
    });
    const words = [...svg.querySelectorAll('text')].map(text => text.getBoundingClientRect());
    const cut = words.filter(w => w.left < own.left - 1 || w.right > own.right + 14).length;
    return {width: own.width, height: own.height, drawn, cut};
  })"""


def check_drawn(page, least):
    """Every visible chart has a size, and every series in it covers some of it."""
    boxes = page.evaluate(BOXES)
    assert len(boxes) >= least
    for box in boxes:
        assert box["width"] > 150
        assert box["height"] > 100
        assert box["drawn"]
        assert all(part["width"] + part["height"] > 0 for part in box["drawn"])
        assert box["cut"] == 0
    images = page.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth])")
    assert all(complete and width > 0 for complete, width in images)


# Words of tables, tiles and the verdict that are divided between two lines.
BROKEN = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll('th, td, dt, dd, .verdict')) {
    if (!cell.checkVisibility()) continue;
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const tops = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
        if (tops.size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""


def sideways(page):
    # Not innerWidth: on a phone it grows with what is too wide.
    return page.evaluate("document.documentElement.scrollWidth") - page.viewport_size["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    ("name", "least"),
    [("one", 10), ("regression", 7), ("good", 7), ("worse", 7), ("brief", 7), ("three", 3)],
)
def test_every_figure_is_drawn_in_both_schemes(visit, name, least, width, scheme):
    page = visit(name, width=width, color_scheme=scheme)
    check_drawn(page, least)
    assert sideways(page) <= 0
    assert not page.evaluate(BROKEN)
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    numbers = [int(part) for part in shade.strip("rgb()").split(",")]
    assert (sum(numbers) > 3 * 128) == (scheme == "light")


@pytest.mark.parametrize("name", ["one", "regression", "three"])
def test_a_phone_needs_no_sideways_scroll(visit, name):
    page = visit(name, width=390, is_mobile=True, has_touch=True, device_scale_factor=2)
    assert sideways(page) <= 0
    check_drawn(page, 3)
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert sideways(page) <= 0
    for summary in page.locator("summary").all():
        if summary.is_visible():
            summary.click()
    assert sideways(page) <= 0


def test_a_wide_table_says_that_it_scrolls(visit):
    narrow, wide = visit("one", width=390), visit("one", width=1280)
    ask = """() => [...document.querySelectorAll('#r0-quality .table')].map(box => {
      const inner = box.querySelector('.scroll');
      const said = getComputedStyle(box.querySelector('.hint')).display === 'block';
      return [inner.scrollWidth > inner.clientWidth + 1, said];
    })"""
    for page in (narrow, wide):
        assert all(scrolls == said for scrolls, said in page.evaluate(ask))
    assert narrow.evaluate(ask)[0] == [True, True]
    assert wide.evaluate(ask)[0] == [False, False]
    narrow.set_viewport_size({"width": 1280, "height": 900})
    narrow.wait_for_function("!document.querySelector('#r0-quality .table.wider')")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [("good", "ok", "Better than one "), ("worse", "problem", "Worse than one SGD")],
)
def test_the_verdict_is_green_only_for_a_gain(visit, name, kind, words):
    page = visit(name)
    line = page.locator(".verdict")
    assert words in line.text_content()
    ask = "(e, k) => getComputedStyle(document.documentElement).getPropertyValue(k).trim()"
    shown = line.evaluate("e => getComputedStyle(e).borderLeftColor")
    assert rgb(line.evaluate(ask, f"--{kind}")) == shown


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def panels(page):
    return [panel.get_attribute("id") for panel in page.locator(".panel").all()
            if panel.is_visible()]  # fmt: skip


def test_tabs_by_mouse(visit):
    page = visit("three")
    assert panels(page) == ["panel-cmp"]
    for name, key in (("sgld", "r1"), ("regression", "r2"), ("emcmc", "r0")):
        page.get_by_role("tab", name=name, exact=True).click()
        assert panels(page) == [f"panel-{key}"]
        check_drawn(page, 4)
        chosen = page.locator('[role="tab"][aria-selected="true"]').all_text_contents()
        assert chosen == [name]


def test_tabs_by_keyboard(visit):
    page = visit("three")
    page.locator("#tab-cmp").focus()
    keys = {"ArrowRight": "r0", "End": "r2", "ArrowLeft": "r1", "Home": "cmp"}
    for key, panel in keys.items():
        page.keyboard.press(key)
        assert panels(page) == [f"panel-{panel}"]
        assert page.evaluate("document.activeElement.id") == f"tab-{panel}"
    page.keyboard.press("ArrowLeft")
    assert panels(page) == ["panel-r2"]  # round the end
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "panel-r2"  # tabs are one stop


def test_the_comparison_by_mouse_and_keyboard(visit):
    page = visit("three")
    check_drawn(page, 4)
    curve = page.locator('#panel-cmp .series[data-run="1"]').first
    row = page.locator('#panel-cmp tr[data-run="1"]').first
    assert curve.is_visible()
    page.get_by_role("checkbox", name="sgld").click()
    assert not curve.is_visible()
    assert not row.is_visible()
    page.keyboard.press("Space")  # the switch has the focus
    assert curve.is_visible()
    assert row.is_visible()


def test_a_link_opens_the_tab_of_its_target(visit, pages):
    page = visit("three")
    page.evaluate("location.hash = '#r1-learning'")
    page.wait_for_function("!document.getElementById('panel-r1').hidden")
    assert panels(page) == ["panel-r1"]


def test_words_under_the_pointer(visit):
    page = visit("one")
    mark = page.locator("#r0-quality .mark").first
    mark.hover()
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert tip.text_content() == mark.get_attribute("data-tip")


def test_numbers_open_by_keyboard_and_focus_is_seen(visit):
    page = visit("one")
    summary = page.locator("#r0-learning summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#r0-learning table").first.is_visible()
    page.keyboard.press("Shift+Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"


def test_the_theme_button(visit):
    page = visit("one", color_scheme="light")
    shade = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(shade)
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate(shade) != before
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate(shade) == before


def test_print_shows_all_runs_in_light(visit):
    page = visit("three", color_scheme="dark")
    page.emulate_media(media="print")
    assert len(panels(page)) == 4
    assert not page.locator(".tabs").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf(format="A4")) > 20_000


def test_without_a_script_everything_is_there(visit):
    page = visit("three", java_script_enabled=False)
    assert page.locator("#panel-r2").is_visible()
    assert not page.locator("#theme").is_visible()


def test_text_has_contrast(visit):
    """WCAG AA: 4.5 to 1 for the soft text on cards and page, in both schemes."""
    for scheme in ("light", "dark"):
        page = visit("one", color_scheme=scheme)
        names = ["--ink", "--soft", "--ok", "--note", "--warning", "--problem", "--accent"]
        ask = "names => names.map(n => getComputedStyle(document.documentElement)" + (
            ".getPropertyValue(n).trim())"
        )
        inks, grounds = page.evaluate(ask, names), page.evaluate(ask, ["--page", "--card"])
        for ground in grounds:
            for name, ink in zip(names, inks, strict=True):
                assert contrast(ink, ground) >= 4.5, (scheme, name, ink, ground)


def contrast(first, second):
    """Ratio of relative luminances, from the definition of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
