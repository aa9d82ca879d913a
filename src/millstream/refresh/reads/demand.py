"""Read what a block needs: the changed rows, and every row that they can join.

`compiler.blocks.demand` plans which key messages go along the join tree; this module sends them: it
looks up the keys of the sender's rows in the receiver. A row that two messages find is read twice
and counted once: column `ROW`, where the row is stored, identifies it. The driver does not hold the
rows of a table that Spark scans, so it has no keys to send from there, and the neighbours of that
table are read in full too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from millstream.algebra.block import Branch, Input
from millstream.compiler.blocks.demand import Id, KeyMessage, messages
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.reads.input_rows import InputRows, LookedUpKeys
from millstream.refresh.reads.read_sql import ROW, schema_of
from millstream.refresh.reads.semijoin import (
    LONG_JOIN,
    SemiJoinReduction,
    compares_exactly,
    count_duplicates,
)
from millstream.spark.engine import Engine, Rows
from millstream.spark.scan import Scanned

# By name of an input: its rows that cross a temporal filter.
Crossing = Mapping[str, "pa.Table | Scanned"]


def read_demanded(
    branch: Branch,
    first: Mapping[str, pa.Table],
    access: AccessPaths,
    *,
    before: int,
    crossing: Crossing = MappingProxyType({}),
) -> dict[str, InputRows]:
    """Return the rows of each input that the first rows, and the rows that cross a temporal filter,
    can join.

    `before` is how often a stored row counts before this refresh: 1, or 0 if only the new version
    is computed.
    """
    names = [input_.name for input_ in branch.inputs]
    held = {name: InputRows.starting_with(first.get(name), crossing.get(name)) for name in names}
    holders = [name for name, rows in held.items() if rows.starting_rows()]
    answers = dict[Id, "pa.Table | Scanned"]()
    # Messages because of which everything behind their receiver is read in full, if rows can appear
    # without a match.
    in_full = set[Id]()
    # Sizes order the messages; two inputs leave no choice of order.
    planned = messages(
        branch, holders, access.sizes(branch.inputs) if len(branch.inputs) > 2 else {}
    )
    waiting = {message.id for message in planned}
    reading = _Reading(branch, held, access, SemiJoinReduction(branch, held, waiting), before)
    for message in planned:
        if any(id_ in in_full for id_ in message.after) or _asks_for_all(message, held):
            in_full.add(message.id)
        everything = message.id in in_full and (message.spreads or not message.sender_columns)
        answer = reading.answer(message, answers, everything=everything)
        waiting.remove(message.id)
        if answer is not None:
            answers[message.id] = answer
    return {name: rows.reduce(partial(reading.reduction.rows, name)) for name, rows in held.items()}


def _asks_for_all(message: KeyMessage, held: dict[str, InputRows]) -> bool:
    """Return True if a message without key columns has any row behind it: the receiver is then read
    in full.
    """
    return not message.sender_columns and any(held[name].has_rows() for name in message.behind)


@dataclass(frozen=True)
class _Reading:
    """The rows of a branch, while its inputs are read."""

    branch: Branch
    held: dict[str, InputRows]
    access: AccessPaths
    reduction: SemiJoinReduction
    before: int

    def answer(
        self, message: KeyMessage, answers: Mapping[Id, pa.Table | Scanned], *, everything: bool
    ) -> pa.Table | Scanned | None:
        """Return the receiver's rows for the sender's keys, and add them to the receiver; None if
        there are no keys.
        """
        receiver = self.held[message.receiver]
        if receiver.whole is not None:
            return receiver.whole
        sent = [answers[id_] for id_ in message.after if id_ in answers]
        if message.round == 1:
            sent += self.held[message.sender].starting_rows()
        tables = [rows for rows in sent if isinstance(rows, pa.Table) and rows.num_rows > 0]
        scanned = any(isinstance(rows, Scanned) for rows in sent)
        if not tables and not scanned and not everything:
            return None
        if scanned or everything:
            why = (
                "the whole input is needed"
                if scanned or message.sender_columns
                else "no equality joins it"
            )
            input_ = self.branch.input(message.receiver)
            receiver.whole = self.access.everything(input_, before=self.before, why=why)
            return receiver.whole
        return self._look_up(message, receiver, tables)

    def _look_up(
        self, message: KeyMessage, receiver: InputRows, tables: Sequence[pa.Table]
    ) -> pa.Table | Scanned | None:
        """Look up the keys of these rows in the receiver, except keys that were looked up before."""
        joining = [
            self.reduction.rows(
                message.sender, rows, receiver=message.receiver, round_=message.round
            )
            for rows in tables
        ]
        keys = distinct_keys(joining, message.sender_columns, message.nulls)
        if keys.num_rows == 0:
            return None
        column = _single_column(self.branch, message)
        known, new = receiver.split_known(column, keys) if column else ([], keys)
        if new.num_rows == 0:
            return pa.concat_tables(known)
        input_ = self.branch.input(message.receiver)
        answer = self.access.lookup(
            input_, message.receiver_columns, new, before=self.before, nulls=message.nulls
        )
        if not isinstance(answer, pa.Table) or ROW not in answer.column_names:
            receiver.whole = answer
            return answer
        receiver.found.append(answer)
        if column:
            receiver.lookups.append(LookedUpKeys(column, new.column(0), answer))
        return pa.concat_tables([*known, answer])


def _single_column(branch: Branch, message: KeyMessage) -> str:
    """Return the only column that a message looks up by; empty if it has several or its keys do not
    compare exactly.
    """
    if len(message.receiver_columns) > 1 or message.nulls:
        return ""
    own, theirs = message.sender_columns[0], message.receiver_columns[0]
    same = compares_exactly(
        branch.input(message.sender).leaf(own), branch.input(message.receiver).leaf(theirs)
    )
    return theirs if same else ""


def distinct_keys(
    tables: list[pa.Table], columns: tuple[str, ...], nulls: tuple[int, ...] = ()
) -> pa.Table:
    """Return each key once.

    A key with a NULL joins nothing and is left out, except at the positions `nulls`.
    """
    # A column may occur twice: a.x = b.y AND a.x = b.z.
    distinct = list(dict.fromkeys(columns))
    keys = pa.concat_tables([table.select(distinct) for table in tables])
    for column in {column for place, column in enumerate(columns) if place not in nulls}:
        keys = keys.filter(pc.is_valid(keys[column]))
    return keys.group_by(distinct).aggregate([]).select(list(columns))


def rows_of(
    input_: Input, rows_read: InputRows, engine: Callable[[], Engine], *, joined: int = 1
) -> Rows:
    """Return all rows of an input for Spark: the images, and each stored row once; `joined` tables
    are in the join.
    """
    schema = schema_of(input_)
    images = rows_read.first if rows_read.first is not None else schema.empty_table()
    if isinstance(rows_read.whole, Scanned):
        return (
            rows_read.whole.and_images(engine().frame(images))
            if images.num_rows
            else rows_read.whole
        )
    stored = (
        [rows_read.whole]
        if rows_read.whole is not None
        else [_once(rows_read.found)]
        if rows_read.found
        else []
    )
    rows = pa.concat_tables(
        [images.select(schema.names), *(table.select(schema.names) for table in stored)]
    )
    return count_duplicates(input_, rows, corrected=joined >= LONG_JOIN and images.num_rows > 0)


def _once(found: list[pa.Table]) -> pa.Table:
    """Return each stored row once."""
    if len(found) == 1:
        return found[0]
    rows = pa.concat_tables(found)
    firsts = (
        rows.append_column("__n", pa.array(range(rows.num_rows), pa.int64()))
        .group_by(ROW)
        .aggregate([("__n", "min")])
    )
    return rows.take(firsts["__n_min"])
