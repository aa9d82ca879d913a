"""SQL that prints a value by its type's output function, and reads it back by its input function.

`x::text` and `text::type` call a user-defined cast where there is one. The owner of a type may
define such a cast at any time: it may print something else, and its code runs with the rights of
our session. Users cannot define a cast between two built-in types, so these are cast. For a
user-defined type the output function is called by its name:

    pg_catalog.textin(pg_catalog.enum_out(x))

Input functions are polymorphic and cannot be called by name. `json_to_record` reads a string by the
input function of the column that it is to become:

    (SELECT v.v FROM pg_catalog.json_to_record(pg_catalog.json_build_object('v', x)) AS v (v
    shop.mood))

Staging tables are temporary and hold built-in types only: a domain cannot get a constraint, nor a
composite an attribute, while another session's temporary table has a column of it.

    user-defined type   staged as its text
    domain              staged as the built-in type underneath
"""

from __future__ import annotations

from millstream.algebra.types import PgType


def output_sql(expression: str, type_: PgType) -> str:
    """Return SQL for the text of a value."""
    if type_.base == "bpchar" and type_.kind == "base":
        return f"pg_catalog.textin(pg_catalog.bpcharout({expression}))"
    if not type_.output:
        return f"({expression})::text"
    # A polymorphic function does not take a domain.
    value = f"({expression})::{type_.underlying}" if type_.is_domain else expression
    return f"pg_catalog.textin({type_.output}({value}))"


def input_sql(text: str, type_: PgType) -> str:
    """Return SQL for the value that a text stands for."""
    if not type_.output:
        return f"({text})::{type_.name}"
    # jsonb is faster, and its strings are limited to 256 MB.
    json = "jsonb" if type_.kind == "enum" else "json"
    record = f"pg_catalog.{json}_to_record(pg_catalog.{json}_build_object('v', {text}))"
    return f"(SELECT __ms_in.v FROM {record} AS __ms_in (v {type_.name}))"


# -- staging ---------------------------------------------------------------------------------


def staged_sql(expression: str, type_: PgType) -> str:
    """Return SQL for a value as a staging table stores it."""
    if type_.output:
        return output_sql(expression, type_)
    return f"({expression})::{type_.underlying}" if type_.is_domain else expression


def unstaged_sql(expression: str, type_: PgType) -> str:
    """Return SQL for the value that a staging table stores, in its own type."""
    if type_.output:
        return input_sql(expression, type_)
    return f"({expression})::{type_.name}" if type_.is_domain else expression
