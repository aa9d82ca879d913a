"""Gather what a block must read: the changed rows and every row they can meet.

`compiler.blocks.demand` says which messages go along the join tree; here they are sent. A row found by two
messages is read twice and counted once, told apart by where it is stored. What was scanned whole
is not held by the driver, so its neighbours are asked for everything in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from millstream.algebra.block import Branch, Input
from millstream.compiler.blocks.demand import Id, KeyMessage, messages
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.reads.input_rows import InputRows, LookedUpKeys
from millstream.refresh.reads.read_sql import ROW, schema_of
from millstream.refresh.reads.semijoin import LONG_JOIN, SemiJoinReduction, alike, count_duplicates
from millstream.spark.engine import Engine, Rows
from millstream.spark.scan import Scanned

# By name of an input: its rows of which a moving filter says one thing before and another after.
Crossing = Mapping[str, "pa.Table | Scanned"]


def read_demanded(
    branch: Branch,
    first: Mapping[str, pa.Table],
    access: AccessPaths,
    *,
    before: int,
    crossing: Crossing = MappingProxyType({}),
) -> dict[str, InputRows]:
    """Send all messages that start from the inputs that hold rows."""
    held = {one.name: InputRows.beginning(first.get(one.name), crossing.get(one.name)) for one in branch.inputs}
    holders = [name for name, rows in held.items() if rows.begins()]
    answers, alls = dict[Id, "pa.Table | Scanned"](), set[Id]()
    # Of two there is no choice.
    planned = messages(branch, holders, access.sizes(branch.inputs) if len(branch.inputs) > 2 else {})
    waiting = {message.id for message in planned}
    reduction = SemiJoinReduction(branch, held, waiting)
    for message in planned:
        if any(id_ in alls for id_ in message.after) or _asks_for_all(message, held):
            alls.add(message.id)
        everything = message.id in alls and (message.spreads or not message.sender_columns)
        answer = _answer(branch, message, held, answers, access, before, reduction, everything=everything)
        waiting.remove(message.id)
        if answer is not None:
            answers[message.id] = answer
    return {name: rows.reduced(partial(reduction.rows, name)) for name, rows in held.items()}


def _asks_for_all(message: KeyMessage, held: dict[str, InputRows]) -> bool:
    """Without columns to look up by, any row asks for everything."""
    return not message.sender_columns and any(held[name].rows() for name in message.behind)


def _answer(
    branch: Branch,
    message: KeyMessage,
    held: dict[str, InputRows],
    answers: dict[Id, pa.Table | Scanned],
    access: AccessPaths,
    before: int,
    reduction: SemiJoinReduction,
    *,
    everything: bool,
) -> pa.Table | Scanned | None:
    """What the receiver has for the sender's keys; None when there is nothing to ask for."""
    receiver = held[message.receiver]
    if receiver.whole is not None:
        return receiver.whole
    speaking = [answers[id_] for id_ in message.after if id_ in answers]
    if message.round == 1:
        speaking += held[message.sender].begins()
    tables = [rows for rows in speaking if isinstance(rows, pa.Table) and rows.num_rows > 0]
    scanned = any(isinstance(rows, Scanned) for rows in speaking)
    if not tables and not scanned and not everything:
        return None
    one = branch.input(message.receiver)
    if scanned or everything:
        why = "everything is asked for" if scanned or message.sender_columns else "no equality ties it"
        receiver.whole = access.everything(one, before=before, why=why)
        return receiver.whole
    meeting = [reduction.rows(message.sender, rows, away=message.receiver, number=message.round) for rows in tables]
    keys = distinct_keys(meeting, message.sender_columns, message.nulls)
    if keys.num_rows == 0:
        return None
    column = _by_one_column(branch, message)
    known, new = receiver.known(column, keys) if column else ([], keys)
    if new.num_rows == 0:
        return pa.concat_tables(known)
    answer = access.lookup(one, message.receiver_columns, new, before=before, nulls=message.nulls)
    if not isinstance(answer, pa.Table) or ROW not in answer.column_names:
        receiver.whole = answer
        return answer
    receiver.found.append(answer)
    if column:
        receiver.asked.append(LookedUpKeys(column, new.column(0), answer))
    return pa.concat_tables([*known, answer])


def _by_one_column(branch: Branch, message: KeyMessage) -> str:
    """The column that is asked by, where keys that another message has asked for can be told from others."""
    if len(message.receiver_columns) > 1 or message.nulls:
        return ""
    own, theirs = message.sender_columns[0], message.receiver_columns[0]
    same = alike(branch.input(message.sender).leaf(own), branch.input(message.receiver).leaf(theirs))
    return theirs if same else ""


def distinct_keys(tables: list[pa.Table], columns: tuple[str, ...], nulls: tuple[int, ...] = ()) -> pa.Table:
    """Each key once; one with a NULL in it meets nothing, but for the places where NULLs are equal."""
    # One column may be tied to two: a.x = b.y AND a.x = b.z.
    distinct = list(dict.fromkeys(columns))
    keys = pa.concat_tables([table.select(distinct) for table in tables])
    for column in {column for place, column in enumerate(columns) if place not in nulls}:
        keys = keys.filter(pc.is_valid(keys[column]))
    return keys.group_by(distinct).aggregate([]).select(list(columns))


def rows_of(one: Input, rows_read: InputRows, engine: Callable[[], Engine], *, joined: int = 1) -> Rows:
    """All rows of an input as Spark gets them: images, and stored rows each once; so many tables are joined."""
    schema = schema_of(one)
    images = rows_read.first if rows_read.first is not None else schema.empty_table()
    if isinstance(rows_read.whole, Scanned):
        return rows_read.whole.and_images(engine().frame(images)) if images.num_rows else rows_read.whole
    stored = [rows_read.whole] if rows_read.whole is not None else [_once(rows_read.found)] if rows_read.found else []
    rows = pa.concat_tables([images.select(schema.names), *(table.select(schema.names) for table in stored)])
    return count_duplicates(one, rows, corrected=joined >= LONG_JOIN and images.num_rows > 0)


def _once(found: list[pa.Table]) -> pa.Table:
    if len(found) == 1:
        return found[0]
    rows = pa.concat_tables(found)
    firsts = (
        rows.append_column("__n", pa.array(range(rows.num_rows), pa.int64())).group_by(ROW).aggregate([("__n", "min")])
    )
    return rows.take(firsts["__n_min"])
