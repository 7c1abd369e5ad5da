"""`fodo.compat.epics`: saved values, and the tables of channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import PREFIX, Place
from test_compat_epics import face_of, until


def test_values_are_saved_and_restored(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("gap", "number", "text", "shutter", "integers", "names", "path")
    (tmp_path / "all.req").write_text(f'# the tests\nfile "some.req", P={PREFIX}\n\n{PREFIX}number\n{PREFIX}text\n')
    (tmp_path / "some.req").write_text("".join(f"$(P){name}\n" for name in names if name not in ("number", "text")))
    first = {"gap": 2.5, "number": 8, "text": "a b", "shutter": 1, "integers": [1, 2], "names": ["a b", "c"], "path": "/a b"}
    with face_of(place.settings) as epics:

        def put(values: dict[str, Any]) -> None:
            for name, value in values.items():
                assert epics.caput(PREFIX + name, value, wait=True) == 1

        put(first)
        epics.autosave.save_pvs(tmp_path / "all.req", tmp_path / "all.sav", debug=True)
        put({"gap": 1, "number": 1, "text": "x", "shutter": 0, "integers": [3], "names": ["d"], "path": "/"})

        assert epics.autosave.restore_pvs(tmp_path / "all.sav")

        until(lambda: epics.caget(PREFIX + "path", as_string=True, use_monitor=False) == "/a b")
        found = {name: epics.caget(PREFIX + name, use_monitor=False) for name in names if name != "path"}
        assert {name: list(value) if name in ("integers", "names") else value for name, value in found.items()} == {
            name: value for name, value in first.items() if name != "path"
        }
    assert "PV face:gap = 2.5".replace("face:", PREFIX) in capsys.readouterr().out
    assert (tmp_path / "all.sav").read_text().endswith("<END>\n")


def test_empty_texts_and_texts_of_several_lines_are_restored(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = tmp_path / "some.sav"
    (tmp_path / "some.req").write_text("".join(f"{PREFIX}{name}\n" for name in ("text", "path", "gap")))

    with face_of(place.settings) as epics:

        def put(text: str, path: str) -> None:
            assert epics.caput(PREFIX + "text", text, wait=True) == epics.caput(PREFIX + "path", path, wait=True) == 1

        def has(name: str, text: str) -> bool:
            return bool(epics.caget(PREFIX + name, as_string=True, use_monitor=False) == text)

        put("", "a\nb")
        epics.autosave.save_pvs(tmp_path / "some.req", saved)
        put("x", "y")
        # What cannot be read, and what synApps adds, is left out.
        saved.write_text(f"! 1 channel(s) not connected\n{PREFIX}number @array@ {{ 1 }}}}\n" + saved.read_text())
        assert not epics.autosave.restore_pvs(saved)
        until(lambda: has("text", "") and has("path", "a\nb"))
        assert "some.sav:2: the value is not valid" in caplog.text and "not restored" not in caplog.text

        put("a\nb", "")
        epics.autosave.save_pvs(tmp_path / "some.req", saved)
        assert f'"{PREFIX}text" is not saved: its text has several lines' in caplog.text
        assert PREFIX + "text" not in saved.read_text()


def test_a_request_file_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    from fodo.compat.epics.autosave import AutoSaver
    from fodo.compat.epics.autosave.save_restore import _restored

    for name, text, reason in (
        ("a.req", "x:a x:b\n", "a.req:1: expected the name of one PV"),
        ("b.req", "file\n", "b.req:1: expected the name of a file"),
        ("c.req", "file c.req\n", "include one another more than 20 times"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=reason):
            AutoSaver(tmp_path / name)
    # As synApps writes an array.
    assert _restored('x:names @array@ { "a b" "c" }') == ("x:names", ["a b", "c"])


def test_the_channels_are_listed_by_name_and_by_number(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    called: list[bool] = []

    def clear() -> None:
        called.append(True)

    with face_of(place.settings) as epics:
        ca = epics.ca
        with pytest.raises(AttributeError, match=r"'fodo\.compat\.epics\.ca' has no attribute 'tables'"):
            ca.tables  # noqa: B018
        assert ca.initial_context is None and ca.get_cache(PREFIX + "gap") is None
        chid = ca.create_channel(PREFIX + "gap", connect=True)

        item = ca.get_cache(PREFIX + "gap")
        assert (item.pvname, item["chid"], item.conn, item.chid_int) == (PREFIX + "gap", chid, True, chid.value)
        assert list(ca._cache[ca.current_context()]) == [PREFIX + "gap"] and list(ca._chid_cache) == [chid.value]
        assert ca.initial_context == ca.current_context()
        assert ca.client_status(ca.current_context(), 1) == 1
        assert "1 channels, 1 connected" in capsys.readouterr().err
        ca.register_clear_cache(clear)
        with pytest.raises(RuntimeError, match="cannot be called"):
            ca.register_clear_cache(1)
        ca.clear_cache()
        assert called == [True] and ca._cache[ca.current_context()] == {}
        assert (ca.find_lib("Com"), ca.find_libCom()) == ("", "") and isinstance(ca.GET_PENDING, ca.Empty)
