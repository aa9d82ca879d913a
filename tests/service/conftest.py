"""What tests of many queries share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from millstream import Millstream


def exact_through(
    ms: Millstream, database: str, queries: Mapping[str, str], changes: Sequence[str]
) -> None:
    """Keep every query; after each change all are refreshed, differentially, and equal to
    PostgreSQL's answer.
    """
    names = {what: f"st_{number}" for number, what in enumerate(queries)}
    for what, query in queries.items():
        ms.create_stream_table(names[what], query, schedule="1h", refresh_mode="DIFFERENTIAL")
    for change in changes:
        with psycopg.connect(database, autocommit=True) as writer:
            writer.execute(change.encode())
        actions = {report.action for report in ms.refresh_all()}
        wrong = [what for what, name in names.items() if not ms.verify(name).ok]
        assert not wrong
        assert actions <= {"DIFFERENTIAL", "NO_DATA"}
