"""The base of all errors: what each has, and what survives a process boundary."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator

import pytest

from millstream import errors
from millstream.errors import MillstreamError, NoSuchStreamTable, of_code, typed

# The first digit of a code is that of its module.
DIGITS = {
    "surroundings": "0", "query": "1", "stream_table": "2", "capture": "3", "refresh": "4", "requests": "5",
    "defect": "9",
}  # fmt: skip


def classes(kind: type[MillstreamError] = MillstreamError) -> Iterator[type[MillstreamError]]:
    """All classes of errors."""
    for child in kind.__subclasses__():
        if child.__module__.startswith("millstream."):
            yield child
            yield from classes(child)


def test_each_code_belongs_to_one_class_and_is_found_by_it() -> None:
    codes = Counter(kind.code for kind in classes())
    assert [code for code, count in codes.items() if count > 1] == []
    assert all(of_code(kind.code) is kind for kind in classes())


@pytest.mark.parametrize("kind", [*classes()], ids=lambda kind: kind.__name__)
def test_a_code_begins_with_the_digit_of_its_module(kind: type[MillstreamError]) -> None:
    assert kind.code[:3] == f"MS{DIGITS[kind.__module__.rpartition('.')[2]]}"


def test_every_class_is_exported() -> None:
    assert {kind.__name__ for kind in classes()} <= set(errors.__all__)


def test_facts_are_attributes_and_survive_a_process_boundary() -> None:
    error = NoSuchStreamTable.named("totals")
    travelled = pickle.loads(pickle.dumps(error))
    assert (type(travelled), str(travelled)) == (NoSuchStreamTable, str(error))
    assert travelled.name == "totals"
    with pytest.raises(AttributeError):
        _ = error.nothing


def test_what_is_empty_has_no_line() -> None:
    assert str(MillstreamError("it broke")) == "it broke [MS000]"
    assert str(MillstreamError("it broke", hint="Mend it.")) == "it broke [MS000]\nHINT: Mend it."


def test_the_document_is_json_whatever_the_facts_are() -> None:
    document = MillstreamError("it broke", rows=3, ok=True, where=object).as_dict()
    assert json.loads(json.dumps(document))["facts"] == {
        "rows": 3,
        "ok": True,
        "where": "<class 'object'>",
    }


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("totals",), "totals"),
        (("shop", "totals"), "shop.totals"),
        (("Big",), "'\"Big\"'"),
        (("a b",), "'\"a b\"'"),
    ],
)
def test_a_name_in_a_command_is_quoted_for_sql_and_for_the_shell(
    parts: tuple[str, ...], expected: str
) -> None:
    assert typed(*parts) == expected
