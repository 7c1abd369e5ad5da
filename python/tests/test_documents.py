"""The programs in the documents."""

from __future__ import annotations

import re

import pytest

from processes import FOLDER, isolated, printed_by, serving

ROOT = FOLDER.parent.parent


def programs(page: str) -> list[str]:
    """The blocks marked `python`."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_tour_of_the_readme_runs() -> None:
    settings = isolated()
    client, ioc = programs("README.md")

    with serving(settings, "tour:"):
        printed = printed_by(client, settings).splitlines()

    assert printed[0].startswith("6.25 mm NO_ALARM 20") and float(printed[-1]) > 3
    assert printed_by(ioc, isolated()) == ""


def printed_with_records(found: list[str]) -> list[str]:
    """The lines that these programs print, one after the other in one process, with the records of the tests."""
    settings = isolated()
    with serving(settings, "x:"):
        return printed_by("\n".join(found), settings).splitlines()


def test_the_programs_for_users_of_pyepics_run() -> None:
    printed = printed_with_records(programs("docs/how-to/move-from-pyepics.md"))

    assert printed[:3] == ["12.5 mm 0 12.50", "Open", "12"]
    assert printed[4] == "0 0 None" and float(printed[-1]) > 3


def test_the_programs_for_users_of_caproto_run() -> None:
    found = programs("docs/how-to/move-from-caproto.md")
    servers = [program for program in found if "fodo.ioc" in program]

    printed = printed_with_records([program for program in found if program not in servers])

    assert printed[0].startswith("13.5 mm 0 ") and printed[-1] == "2.5 7"
    assert printed_by("\n".join(servers), isolated()) == "1 303.65\n"


@pytest.mark.parametrize("program", programs("docs/how-to/move-from-p4p.md"))
def test_the_programs_for_users_of_p4p_run(program: str) -> None:
    settings = isolated()

    with serving(settings, "x:"):
        assert printed_by(program, settings).strip()


@pytest.mark.parametrize("page", ["python/README.md", "docs/how-to/use-python.md", "docs/how-to/move-from-aioca.md"])
def test_programs_in_documents_are_valid(page: str) -> None:
    found = programs(page)

    assert found
    for program in found:
        compile(program, page, "exec")


def test_the_first_programs_of_the_page_about_clients_run() -> None:
    # The others do not end.
    printed = printed_with_records(programs("docs/how-to/use-python.md")[:2])

    assert len(printed) == 1
    assert printed[0].startswith('x:absent has no value: "x:absent": no server claimed the name within 2 s; check that')


@pytest.mark.parametrize("number", range(5))
def test_programs_of_the_page_about_servers_run(number: int) -> None:
    found = programs("docs/how-to/serve-pvs-in-python.md")
    expected = [
        ["lab:gap is set to 2.5", "mm", 'the gap must be between 0 and 5 mm"'],
        ["3e-09 hPa 0"],
        ["2.5 (480, 640) <Array of 2 text: ['a', 'b']>"],
        ["3"],
        ["2.5"],
    ]
    assert len(found) == len(expected)

    printed = printed_by(found[number], {}).splitlines()

    assert len(printed) == len(expected[number])
    for line, end in zip(printed, expected[number], strict=True):
        assert line.endswith(end)
def test_the_programs_of_the_page_about_iocs_run() -> None:
    # Each is a part of one program.
    program = "\n".join(programs("docs/how-to/run-an-ioc-in-python.md"))

    printed = printed_by(program, isolated()).splitlines()

    assert printed[:2] == ["move to 100.0", "22.0"] and printed[2].startswith("12.5 IocCounts(n_set=5,")
    assert printed[3:] == ["3.0", "1.5"]


def test_the_programs_for_users_of_softioc_run() -> None:
    # Each is a part of one program.
    program = "\n".join(programs("docs/how-to/move-from-softioc.md"))

    printed = printed_by(program, isolated()).split()

    assert printed == ["12.5", "12.5"]
