"""Filters that move with a single row: the rows they flip are read, and no others are needed.

Random rows and random changes, so that averages, extremes and counts move a little, much, to NULL
and back; then negative controls: break what is read, and the law must notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from millstream.algebra.block import Input
from millstream.refresh.reads import read_sql, single_rows
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.reads.read_sql import FilterVersions

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETUP = """
CREATE TABLE shops (id int PRIMARY KEY, town int, name text COLLATE "C");
CREATE TABLE sales (id int PRIMARY KEY, shop int, amount numeric(8,2), weight double precision, day date, note text);
CREATE INDEX ON sales (amount);
INSERT INTO shops SELECT n, n % 4, chr(96 + n) FROM generate_series(1, 12) AS n;
INSERT INTO sales
SELECT n, n % 13, n % 17, n / 3.0, DATE '2024-01-01' + n % 11, chr(97 + n % 7) FROM generate_series(1, 60) AS n
"""

MEAN = "(SELECT avg(amount) FROM sales)"
TABLES = {
    "above the mean": f"SELECT id FROM sales WHERE amount > {MEAN}",
    "not above it": f"SELECT id FROM sales WHERE NOT amount > {MEAN}",
    "between two": f"SELECT id FROM sales WHERE amount BETWEEN (SELECT min(amount) + 2 FROM sales) AND {MEAN}",
    "either": f"SELECT id FROM sales WHERE amount > {MEAN} OR day > (SELECT max(day) - 2 FROM sales)",
    "unknown unless": f"SELECT id FROM sales WHERE (amount < {MEAN}) IS NOT TRUE",
    "joined": f"SELECT s.id, h.name FROM sales AS s JOIN shops AS h ON h.id = s.shop WHERE s.amount >= {MEAN}",
    "both sides": f"SELECT s.id, h.id AS shop FROM sales AS s JOIN shops AS h ON h.id = s.shop"
    f" WHERE s.amount > {MEAN} AND h.town < (SELECT count(*) / 20 FROM sales)",
    "exists": "SELECT id FROM shops AS h WHERE EXISTS"
    f" (SELECT FROM sales AS s WHERE s.shop = h.id AND s.amount > {MEAN})",
    "exists none": "SELECT id FROM shops AS h WHERE NOT EXISTS"
    f" (SELECT FROM sales AS s WHERE s.shop = h.id AND s.amount * 2 > {MEAN})",
    "optional": f"SELECT h.id, s.id AS sale FROM shops AS h LEFT JOIN"
    f" (SELECT * FROM sales WHERE amount > {MEAN}) AS s ON s.shop = h.id",
    "above, with its best": f"SELECT h.id, s.id AS sale FROM shops AS h LEFT JOIN sales AS s ON s.shop = h.id"
    f" WHERE h.id > {MEAN}",
    "full": "SELECT h.id, s.id AS sale FROM (SELECT * FROM shops WHERE town < (SELECT count(*) / 20 FROM sales)) AS h"
    f" FULL JOIN (SELECT * FROM sales WHERE amount > {MEAN}) AS s ON s.shop = h.id",
    "grouped": f"SELECT shop, count(*) AS n, sum(amount) AS total, max(day) AS last FROM sales"
    f" WHERE amount > {MEAN} GROUP BY shop",
    "groups above": "SELECT shop, sum(amount) AS total FROM sales GROUP BY shop"
    " HAVING sum(amount) > (SELECT sum(amount) / 13 FROM sales)",
    "floats": "SELECT id FROM sales WHERE weight < (SELECT max(weight) / 2 FROM sales)",
    "texts": "SELECT id FROM sales WHERE note > (SELECT min(note) FROM sales)",
    "texts in another order": "SELECT s.id FROM sales AS s WHERE s.note > (SELECT max(name) FROM shops)",
    "all of them": "SELECT id FROM shops WHERE id >= ALL (SELECT amount FROM sales WHERE amount < 9)",
    "any of them": "SELECT id FROM shops WHERE id < ANY (SELECT amount FROM sales)",
    "shown too": "SELECT id, m.mean FROM sales, (SELECT avg(amount) AS mean FROM sales) AS m WHERE amount > m.mean",
    "the largest": "SELECT id FROM sales WHERE amount = (SELECT max(amount) FROM sales)",
    "the first": f"SELECT id, amount FROM sales WHERE amount > {MEAN} ORDER BY amount, id LIMIT 5",
    "ranked": f"SELECT id, rank() OVER (PARTITION BY shop ORDER BY amount) AS r FROM sales WHERE amount > {MEAN}",
    "of the mean above the mean": "SELECT id FROM sales WHERE amount >"
    f" (SELECT avg(amount) FROM sales WHERE amount > {MEAN})",
    "constant": "SELECT id FROM sales, (VALUES (5)) AS v (n) WHERE amount > v.n",
    "unnested": f"SELECT s.id, u.x FROM sales AS s, unnest(ARRAY[s.shop, s.id]) AS u (x) WHERE u.x > {MEAN}",
}


def changes(rnd: random.Random, number: int) -> str:
    """A transaction: most move the bounds a little, some empty a table or fill it."""
    new = [
        f"INSERT INTO sales SELECT {1000 * number + n}, {rnd.randrange(14)}, {rnd.choice(['NULL', '3', '8.5', '40'])},"
        f" {rnd.uniform(0, 30)}, DATE '2024-01-01' + {rnd.randrange(20)}, nullif('b', '{rnd.choice('bc')}')"
        for n in range(rnd.randrange(1, 4))
    ]
    some = f"id % {rnd.randrange(5, 9)} = {rnd.randrange(5)}"
    odd = [
        f"UPDATE sales SET amount = amount + {rnd.choice([-2, 1, 3])} WHERE {some}",
        f"UPDATE sales SET shop = {rnd.randrange(13)}, note = 'c' WHERE {some}",
        f"DELETE FROM sales WHERE {some}",
        f"UPDATE shops SET town = town + 1, name = chr(97 + id) WHERE {some}",
        "UPDATE sales SET amount = NULL",
        "DELETE FROM sales",
    ]
    return "; ".join([*new, *rnd.choices(odd, weights=[4, 3, 3, 2, 1, 1], k=2)])


@pytest.fixture(scope="module")
def temporal_filters(module_law: Law) -> Law:
    """Stream tables whose filters move."""
    module_law.change(SETUP)
    for number, query in enumerate(TABLES.values()):
        module_law.create(f"st_{number}", query)
    return module_law


@pytest.mark.parametrize("seed", range(2))
def test_what_is_read_is_enough(temporal_filters: Law, seed: int) -> None:
    rnd = random.Random(seed)
    for number in range(2):
        temporal_filters.change(changes(rnd, 1 + 10 * seed + number))
        found = {report.name: report.action for report in temporal_filters.ms.refresh_all()}
        assert set(found.values()) <= {"DIFFERENTIAL", "NO_DATA"}
    temporal_filters.change("DELETE FROM sales", SETUP.split(";")[4])
    temporal_filters.ms.refresh_all()


def test_more_rows_than_may_be_looked_up_are_read_as_everything_is(
    temporal_filters: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = temporal_filters.ms.app.settings.model_copy(update={"max_lookup_rows": 5})
    monkeypatch.setattr(temporal_filters.ms.app, "settings", few)
    temporal_filters.change("UPDATE sales SET amount = amount + id % 30")
    reports = {report.name: report for report in temporal_filters.ms.refresh_all()}
    assert {one.why for one in reports["st_0"].inputs if one.path == "read"} == {
        "more than 5 rows crossed a temporal filter"
    }


def test_a_temporal_filter_whose_row_is_unchanged_reads_nothing(temporal_filters: Law) -> None:
    temporal_filters.ms.refresh_all()
    temporal_filters.change("UPDATE sales SET weight = weight + 1")
    (report,) = temporal_filters.refresh("st_0")
    assert {one.path for one in report.inputs} == {"changes"}


# -- negative controls -----------------------------------------------------------------------


def nothing_is_flipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AccessPaths, "crossing", lambda access, one: None)


def the_old_row_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def as_it_is(access: single_rows.SingleRowVersions, one: Input) -> FilterVersions:
        filter_versions = honest(access, one)
        return replace(filter_versions, was=filter_versions.now)

    honest = single_rows.SingleRowVersions.filter_versions
    patch.setattr(single_rows.SingleRowVersions, "filter_versions", as_it_is)


def a_bound_that_is_missing_bounds_nothing(patch: pytest.MonkeyPatch) -> None:
    honest = single_rows._between
    patch.setattr(
        single_rows,
        "_between",
        lambda bound, old, new, *nulls: honest(bound, old, new, False, False),
    )


def a_flipped_row_counts_in_both_versions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        FilterVersions,
        "stored",
        lambda filter_versions, before: ([sql.Literal(before), sql.Literal(1)], []),
    )


def images_are_taken_by_the_new_row(patch: pytest.MonkeyPatch) -> None:
    honest = read_sql.images_sql
    patch.setattr(
        read_sql,
        "images_sql",
        lambda one, images, filter_versions: honest(
            one, images, replace(filter_versions, was=filter_versions.now)
        ),
    )


CONTROLS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    nothing_is_flipped: "UPDATE sales SET amount = 100 WHERE id = 3",
    the_old_row_is_forgotten: "UPDATE sales SET amount = 100 WHERE id = 3",
    a_flipped_row_counts_in_both_versions: "UPDATE sales SET amount = 100 WHERE id = 3",
    a_bound_that_is_missing_bounds_nothing: "DELETE FROM sales",
    images_are_taken_by_the_new_row: "DELETE FROM sales WHERE amount < 9",
}


@pytest.mark.parametrize("sabotage", CONTROLS, ids=lambda one: one.__name__)
def test_the_law_notices(law: Law, sabotage: Callable[[pytest.MonkeyPatch], None]) -> None:
    law.change(SETUP)
    # Where the bound goes to NULL and the rows stay, they are another table's.
    empties = CONTROLS[sabotage] == "DELETE FROM sales"
    law.create(
        "kept", f"SELECT id FROM shops WHERE id < {MEAN}" if empties else TABLES["above the mean"]
    )
    law.change(CONTROLS[sabotage])
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        assert law.broken_by("kept") is not None
    law.refresh("kept")
