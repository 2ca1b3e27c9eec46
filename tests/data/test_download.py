"""Download from a local server: checksum, resume, atomic rename, hostile archives."""

import hashlib
import http.server
import io
import tarfile
import threading
from dataclasses import replace

import pytest

from entropy_mcmc.data import download
from entropy_mcmc.data import official_files as sources
from entropy_mcmc.data.download import fetch, install
from entropy_mcmc.data.official_files import REMOTES, Remote, published_md5
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError

CONTENT = bytes(range(256)) * 50


class Handler(http.server.SimpleHTTPRequestHandler):
    """A file server with ranges, as the official ones have."""

    def do_GET(self):
        file = self.server.folder / self.path.lstrip("/")
        self.server.ranges.append(self.headers.get("Range"))
        if not file.is_file():
            self.send_error(404)
            return
        content, first = file.read_bytes(), 0
        if self.headers.get("Range") and self.server.ranged:
            first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if first >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first : first + self.server.most])

    def log_message(self, *arguments):
        """Keep the test output clean."""


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        http_server.folder, http_server.ranges = folder, []
        http_server.ranged, http_server.most = True, 1 << 30
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        yield http_server
        http_server.shutdown()
        thread.join()


def remote(server, name="file.bin", content=CONTENT, members=()):
    (server.folder / name).write_bytes(content)
    url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
    return Remote(url, name, hashlib.md5(content).hexdigest(), members)


def test_a_file_is_fetched_whole(server, tmp_path):
    target = tmp_path / "data/file.bin"
    fetch(remote(server), target)
    assert target.read_bytes() == CONTENT
    assert [file.name for file in target.parent.iterdir()] == ["file.bin"]


def test_an_interrupted_download_goes_on(server, tmp_path):
    target, part = tmp_path / "file.bin", tmp_path / "file.bin.part"
    source = remote(server)
    server.most = 5000
    with pytest.raises(MissingFileError, match="run the download again"):
        fetch(source, target)
    assert part.read_bytes() == CONTENT[:5000]
    assert not target.exists()
    server.most = 1 << 30
    fetch(source, target)
    assert server.ranges == [None, "bytes=5000-"]
    assert target.read_bytes() == CONTENT
    assert not part.exists()


def test_a_server_without_ranges_starts_over(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"old")
    server.ranged = False
    fetch(remote(server), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_used(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    fetch(remote(server), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_never_becomes_the_file(server, tmp_path):
    target = tmp_path / "file.bin"
    with pytest.raises(DamagedFileError, match="published is 0000"):
        fetch(replace(remote(server), md5="0000"), target)
    assert not target.exists()
    assert not (tmp_path / "file.bin.part").exists()


def test_a_missing_url_is_named(server, tmp_path):
    source = replace(remote(server), url=f"http://127.0.0.1:{server.server_address[1]}/none")
    with pytest.raises(MissingFileError, match="none could not be fetched"):
        fetch(source, tmp_path / "file.bin")


def archive(**members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_gives_its_members_and_nothing_else(server, tmp_path):
    content = archive(**{"set/a.bin": b"AAA", "../evil": b"x", "set/other": b"y"})
    source = remote(server, "set.tar.gz", content, ("set/a.bin",))
    base = tmp_path / "data"
    assert install(source, base) == [base / "set/a.bin"]
    assert (base / "set/a.bin").read_bytes() == b"AAA"
    assert not (tmp_path / "evil").exists()
    assert not (base / "set/other").exists()
    install(source, base)
    assert len(server.ranges) == 1  # all there: no second connection


@pytest.mark.parametrize(
    "content",
    [archive(**{"set/b": b"B"}), b"rubbish", archive(a=b"a")[:40]],
    ids=["another member", "no archive", "cut off"],
)
def test_a_broken_archive_is_refused(server, tmp_path, content):
    source = remote(server, "set.tar.gz", content, ("set/a.bin",))
    with pytest.raises(DamagedFileError, match="cannot be unpacked"):
        install(source, tmp_path / "data")
    assert not list((tmp_path / "data").glob("set/*"))


def test_download_by_name_leaves_good_files_alone(server, tmp_path, monkeypatch):
    files = (remote(server, "one.gz"), remote(server, "two.gz"))
    monkeypatch.setitem(sources.REMOTES, "mnist", files)
    base = tmp_path / "data"
    assert download("mnist", base) == [base / "one.gz", base / "two.gz"]
    assert download("mnist", base) == [base / "one.gz", base / "two.gz"]
    assert len(server.ranges) == 2
    (base / "one.gz").write_bytes(b"damaged")
    download("mnist", base)
    assert (base / "one.gz").read_bytes() == CONTENT


def test_what_cannot_be_downloaded_is_named(tmp_path):
    with pytest.raises(ConfigError, match="imagenet"):
        download("imagenet", tmp_path)


def test_the_table_is_well_formed():
    for files in REMOTES.values():
        for file in files:
            assert file.url.startswith(("http://", "https://"))
            assert len(file.md5) == 32
            for member in file.members:
                known = published_md5(member)
                assert member.startswith("CIFAR-10-C/") or len(known) == 32
