"""The site builds without a warning, links and anchors included, and fetches nothing."""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("mkdocs", reason="pip install -e .[docs]")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    # Not with -q, which would also keep warnings from counting.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    """Links, fetched addresses and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif attributes.get("src") or (tag == "link" and attributes.get("rel") != "canonical"):
            self.fetched.append(attributes.get("src") or attributes.get("href"))


def pages(site):
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


def test_links_and_anchors_lead_somewhere(site):
    linked = pages(site)
    assert len(linked) > 20
    checked = 0
    for path, page in linked.items():
        if path.name == "404.html":
            continue  # its links are absolute: it is served for any address
        for link in page.links:
            if re.match(r"https?:|mailto:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name} links to {link}"
            if anchor and target in linked and anchor != "__skip":
                assert anchor in linked[target].anchors, f"{path.name} links to {link}"
            checked += 1
    assert checked > 500


def test_nothing_is_fetched_from_the_network(site):
    for path, page in pages(site).items():
        assert not [a for a in page.fetched if re.match(r"(https?:)?//", a)], path.name


def public_names():
    """(package or module of the library, name) of every `__all__` that a user sees."""
    import entropy_mcmc

    parts = [info.name for info in pkgutil.iter_modules(entropy_mcmc.__path__, "entropy_mcmc.")]
    for part in ["entropy_mcmc", *parts]:
        if not part.endswith("__main__"):  # which runs the command
            module = importlib.import_module(part)
            yield from ((module, name) for name in getattr(module, "__all__", ()))


def test_every_public_name_is_in_the_reference(site):
    text = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    lost = []
    for module, name in public_names():
        value = getattr(module, name)
        home = getattr(value, "__module__", None)
        own = getattr(value, "__name__", name)  # it may have another one where it is made
        wanted = re.escape(f"{home}.{own}") if home else rf"entropy_mcmc\.[\w.]*\b{name}"
        page = inspect.ismodule(value) and (site / "api" / f"{name}.html").exists()
        if not (page or re.search(f'id="{wanted}"', text)):
            lost.append(f"{module.__name__}.{name}")
    assert not lost, "add them to a page of docs/api"


def test_doctests_become_code(site):
    text = (site / "api" / "samplers.html").read_text()
    assert "<blockquote>" not in text
    assert "math::" not in text


def test_fences():
    path = ROOT / "docs" / "_site" / "docstrings.py"
    spec = importlib.util.spec_from_file_location("docstrings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "Sum.\n\n.. math:: a + b\n\n>>> 1 + 1\n2\n\nEnd."
    expected = "Sum.\n\n```text\na + b\n```\n\n```pycon\n>>> 1 + 1\n2\n```\n\nEnd."
    assert module.fenced(text) == expected


def test_links_of_the_readme_have_their_anchors():
    text = (ROOT / "README.md").read_text()
    for name, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text):
        page = (ROOT / name).read_text() if name else text
        titles = [t.lower() for t in re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)]
        slugs = {re.sub(r"[^\w -]", "", title).strip().replace(" ", "-") for title in titles}
        assert anchor in slugs, f"README links to {name}#{anchor}"
