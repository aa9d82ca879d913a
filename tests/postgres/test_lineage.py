"""What a view reads, link by link: tables, views, functions, and nothing that only a type leads to."""

from __future__ import annotations

from millstream.postgres import lineage
from millstream.postgres.connection import Connection

OBJECTS = """
    CREATE TABLE public.t (id int);
    CREATE TABLE public.child () INHERITS (public.t);
    CREATE TABLE public.shape (id int);
    CREATE VIEW public.v AS SELECT id FROM public.t;
    CREATE MATERIALIZED VIEW public.m AS SELECT id FROM public.v;
    CREATE FUNCTION public.f() RETURNS bigint IMMUTABLE BEGIN ATOMIC SELECT count(*) FROM public.m; END;
    CREATE FUNCTION public.textual() RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT count(*) FROM public.shape';
    CREATE VIEW public.top AS SELECT public.f() AS n, public.textual() AS x, NULL::public.shape AS s FROM public.v;
"""


def printed(conn: Connection, view: str) -> set[str]:
    """Every link as text."""
    oid = conn.execute("SELECT %s::regclass::oid", (view,)).fetchall()[0][0]
    found = lineage.of(conn, oid)
    names = lineage.names(
        conn, {found.root, *found.links, *(one for read in found.links.values() for one in read)}
    )
    return {
        f"{names[reader]} -> {names[one]}" for reader, read in found.links.items() for one in read
    }


def test_a_view_is_followed_through_views_functions_and_children(conn: Connection) -> None:
    conn.execute(OBJECTS)
    conn.execute("SET search_path = pg_catalog")
    assert printed(conn, "public.top") == {
        "view public.top -> view public.v",
        "view public.top -> function public.f()",
        "view public.top -> function public.textual()",
        "view public.v -> table public.t",
        "table public.t -> table public.child",
        "function public.f() -> materialized view public.m",
        "materialized view public.m -> view public.v",
    }


def test_views_that_read_each_other_end(conn: Connection) -> None:
    conn.execute(
        "CREATE VIEW public.a AS SELECT 1 AS id; CREATE VIEW public.b AS SELECT id FROM public.a"
    )
    conn.execute("CREATE OR REPLACE VIEW public.a AS SELECT id FROM public.b")
    assert printed(conn, "public.a") == {
        "view public.a -> view public.b",
        "view public.b -> view public.a",
    }
