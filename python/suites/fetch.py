"""Downloads the source archives of other projects from the package index of pip, and unpacks them: fetch.py LIST FOLDER.

pip itself would run the build of each project to learn its dependencies. LIST is `archives.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

TIMEOUT_S = 120
N_ATTEMPTS = 3


def pip_setting(name: str) -> str | None:
    """A setting of pip: from its variables, or from its files."""
    variable = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if variable:
        return variable
    for section in ("global", "download", "install"):
        command = [sys.executable, "-m", "pip", "config", "get", f"{section}.{name}"]
        printed = subprocess.run(command, capture_output=True, text=True, check=False)
        if printed.returncode == 0:
            return printed.stdout.strip()
    return None


def default_index() -> str:
    """The index that pip uses without a setting."""
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


class Index:
    """The package index that pip uses."""

    def __init__(self) -> None:
        self.url = (pip_setting("index-url") or default_index()).rstrip("/")
        proxy = pip_setting("proxy")
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=pip_setting("cert")))
        ]
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        self.opener = urllib.request.build_opener(*handlers)

    def read(self, url: str, accepted: str) -> bytes:
        request = urllib.request.Request(url, headers={"Accept": accepted})
        for attempt in range(1, N_ATTEMPTS + 1):
            try:
                with self.opener.open(request, timeout=TIMEOUT_S) as reply:
                    return bytes(reply.read())
            except OSError as error:
                if attempt == N_ATTEMPTS:
                    raise SystemExit(f"cannot read {url}: {error}") from error
        raise AssertionError

    def file(self, project: str, name: str) -> bytes:
        """A file of a project. The page of a project has a link to each; the text before `#` is its address."""
        page_url = f"{self.url}/{project}/"
        page = self.read(page_url, "text/html").decode()
        links = [part.split('"', 1)[0].split("#")[0] for part in page.split('href="')[1:]]
        found = [link for link in links if link.rsplit("/", 1)[-1] == name]
        if not found:
            raise SystemExit(f"the package index has no file {name}")
        return self.read(urljoin(page_url, found[0]), "*/*")


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks an archive without its first folder."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as contents:
        contents.extractall(partial, filter="data")
    (first,) = partial.iterdir()
    first.rename(folder)
    partial.rmdir()


def main(listed: Path, sources: Path) -> None:
    sources.mkdir(parents=True, exist_ok=True)
    index: Index | None = None
    for project, wanted in json.loads(listed.read_text()).items():
        name, digest = wanted["file"], wanted["sha256"]
        stamp, archive = sources / f"{project}.sha256", sources / name
        if stamp.exists() and stamp.read_text() == digest:
            continue
        index = index or Index()
        contents = index.file(project, name)
        if hashlib.sha256(contents).hexdigest() != digest:
            raise SystemExit(f"{name} from {index.url} is not the expected file: its sha256 differs from archives.json")
        archive.write_bytes(contents)
        unpack(archive, sources / project)
        archive.unlink()
        stamp.write_text(digest)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
