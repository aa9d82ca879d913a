"""Which SQL is supported, how, and at what cost; and which is refused. Printed as
docs/reference/sql.md.

Every row has a query over the shop of tests/plan, and the suite plans it: a supported one is
accepted, with the blocks that are named here, and a refused one is refused with that code and those
words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.algebra.block import AggregateBlock, Block, PairsBlock

Kind = Literal["join", "groups", "holistic", "window", "limit", "rows", "pairs", "recursion"]

KINDS: dict[Kind, str] = {
    "join": "stores nothing: Spark joins, PostgreSQL computes the select list",
    "groups": "stores one row per group: counts, sums, extremes",
    "holistic": "the same, and holistic aggregates, which PostgreSQL computes over all rows of a touched group",
    "window": "stores its rows: PostgreSQL computes them over all rows of a touched partition",
    "limit": "stores its rows: PostgreSQL reads the first ones of its one input",
    "rows": "stores its rows, as joined by Spark",
    "pairs": "stores pairs of keys: PostgreSQL joins the changed rows by a condition",
    "recursion": "stores its rows, as derived by its steps",
}
_KINDS: dict[str, Kind] = {
    "none": "join", "window": "window", "limit": "limit", "bag": "rows", "set": "recursion", "levels": "recursion",
}  # fmt: skip


def kind_of(block: Block) -> Kind:
    """The kind of a block, in the words of the table."""
    if isinstance(block, AggregateBlock):
        return "holistic" if block.head.holistic else "groups"
    return "pairs" if isinstance(block, PairsBlock) else _KINDS[block.kind]


@dataclass(frozen=True)
class Kept:
    """A supported construct: an example, its blocks (innermost first), strategy, cost and limits."""

    construct: str
    example: str
    blocks: tuple[Kind, ...]
    strategy: str
    cost: str
    limits: str = ""


@dataclass(frozen=True)
class Refused:
    """A refused construct: an example, the code, words of the message, and what to do instead."""

    construct: str
    example: str
    code: Literal["MS102", "MS103", "MS104"]
    says: str
    instead: str


KEPT: tuple[Kept, ...] = (
    # -- rows ------------------------------------------------------------------------------
    Kept(
        "filter, projection, any immutable expression",
        "SELECT id, upper(note) AS note FROM orders WHERE amount > 10",
        ("join",),
        "PostgreSQL evaluates it while reading",
        "the changed rows",
    ),
    Kept(
        "a whole row of a table or view",
        "SELECT o.id, row_to_json(r) AS region FROM customers AS o LEFT JOIN regions AS r ON r.id = o.region",
        ("join",),
        "a derived table shows the row as a column; a column that is added makes a new plan",
        "that of all columns of the table",
        "a stream table that shows the row itself (SELECT r) keeps PostgreSQL from adding a column with a default to "
        "the table",
    ),
    Kept(
        "views, CTEs and subqueries in FROM",
        "SELECT id, amount FROM paid_orders WHERE amount > 10",
        ("join",),
        "inlined",
        "that of their contents",
    ),
    Kept(
        "inner, cross, natural, self joins",
        "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON c.id = o.customer",
        ("join",),
        "Spark multiplies, demand sends keys along the join tree",
        "the changed rows and those that they join; an index on the join's columns helps",
        "equality that is the same in Spark and PostgreSQL",
    ),
    Kept(
        "a join by other than equality",
        "SELECT o.id, v.page FROM orders AS o JOIN visits AS v ON v.seconds < o.quantity",
        ("join",),
        "the same, without keys to send",
        "all of one side when the other changes",
        "comparisons with the same result in Spark and PostgreSQL",
    ),
    Kept(
        "an expression over several tables in the select list",
        "SELECT o.id, c.name || o.note AS label FROM orders AS o JOIN customers AS c ON c.id = o.customer",
        ("join",),
        "Spark returns the columns, PostgreSQL computes while applying",
        "that of the join",
        "in a part of a UNION ALL over materialized rows, which needs an equality",
    ),
    Kept(
        "a condition over several tables that Spark cannot evaluate",
        "SELECT o.id FROM orders AS o JOIN customers AS c ON c.id = o.customer WHERE o.note LIKE c.name",
        ("rows", "join"),
        "the rows of the join are materialized, PostgreSQL filters them",
        "that of the join, and a copy of its rows",
        "an equality must join the tables; in WHERE and the ON of inner joins",
    ),
    Kept(
        "such a condition without an equality, in the ON of an outer join, or in a subquery",
        "SELECT o.id, c.name FROM orders AS o LEFT JOIN customers AS c ON o.note LIKE c.name",
        ("pairs", "join"),
        "PostgreSQL joins the changed rows by the condition; the pairs are stored",
        "a lookup by the condition, with a GiST or GIN index where there is one; two keys for each pair",
        "two tables for each condition; a FULL JOIN needs keys",
    ),
    Kept(
        "LEFT and RIGHT JOIN",
        "SELECT o.id, c.name FROM orders AS o LEFT JOIN customers AS c ON c.id = o.customer",
        ("join",),
        "pairs, and null-extended left rows without a match",
        "that of an inner join, and all matches of the left rows that are read",
        "conditions of ON over both sides must be ones that Spark evaluates",
    ),
    Kept(
        "FULL JOIN",
        "SELECT customer, o.id, v.page FROM orders AS o FULL JOIN visits AS v USING (customer)",
        ("join",),
        "pairs, and null-extended rows of either side without a match",
        "that of an inner join, and all matches of all rows that are read",
        "conditions of ON over both sides must be ones that Spark evaluates",
    ),
    Kept(
        "UNION ALL",
        "SELECT customer FROM orders UNION ALL SELECT customer FROM visits",
        ("join",),
        "each part is a branch",
        "that of its parts",
        "a column has one representation in Spark in all parts",
    ),
    Kept(
        "a function in FROM, WITH ORDINALITY or without",
        "SELECT o.id, w.word FROM orders AS o, regexp_split_to_table(o.note, ' ') AS w (word)",
        ("join",),
        "PostgreSQL calls it while reading the row",
        "the changed rows",
        "over a table named before it; LEFT JOIN only ON true",
    ),
    Kept(
        "a function in FROM over several tables",
        "SELECT o.id, g.n FROM orders AS o JOIN customers AS c ON c.id = o.customer, "
        "generate_series(o.quantity, c.region) AS g (n)",
        ("rows", "join"),
        "the rows of the join are materialized, and it is called while reading them",
        "that of the join, and a copy of its rows",
    ),
    # -- subqueries in expressions ---------------------------------------------------------
    Kept(
        "EXISTS, NOT EXISTS",
        "SELECT id FROM customers AS c WHERE NOT EXISTS (SELECT FROM orders AS o WHERE o.customer = c.id)",
        ("join",),
        "a mark join",
        "the changed rows, the rows that they can match, and all matches of those",
    ),
    Kept(
        "IN as a condition of WHERE, = ANY",
        "SELECT id FROM orders WHERE customer IN (SELECT customer FROM visits WHERE seconds > 10)",
        ("join",),
        "a mark join by equality",
        "as EXISTS",
    ),
    Kept(
        "NOT IN, and IN where unknown is not false",
        "SELECT id FROM orders WHERE customer NOT IN (SELECT customer FROM visits)",
        ("groups", "groups", "join"),
        "a mark join; where NULLs are possible, also counts of the NULLs and of all",
        "as EXISTS; all rows when the subquery gets its first or loses its last NULL or row",
        "over several columns that may be NULL, uncorrelated: all rows at each change",
    ),
    Kept(
        "EXISTS and IN under OR and NOT, in the select list",
        "SELECT id, paid OR EXISTS (SELECT FROM visits AS v WHERE v.customer = o.customer) AS fine FROM orders AS o",
        ("join",),
        "the mark is a column like any other",
        "as EXISTS",
    ),
    Kept(
        "ANY, ALL",
        "SELECT id FROM orders WHERE quantity >= ALL (SELECT region FROM customers)",
        ("groups", "join"),
        "count, least and greatest value of the subquery, stored as one row",
        "that of min and max; all rows when the bound changes",
        "an order that is the same in Spark",
    ),
    Kept(
        "an aggregate as a scalar subquery, correlated",
        "SELECT c.id, (SELECT sum(o.amount) FROM orders AS o WHERE o.customer = c.id) AS spent FROM customers AS c",
        ("groups", "join"),
        "the subquery grouped by its correlated columns, left joined",
        "that of the aggregate and of the join",
    ),
    Kept(
        "an aggregate as a scalar subquery, uncorrelated",
        "SELECT id FROM orders WHERE amount > (SELECT avg(seconds) FROM visits)",
        ("groups", "join"),
        "one group, joined to every row",
        "all rows whenever the value changes, unless it is compared by =",
    ),
    Kept(
        "a scalar subquery with an equality on a unique key",
        "SELECT o.id, (SELECT c.name FROM customers AS c WHERE c.id = o.customer) AS name FROM orders AS o",
        ("join",),
        "a left join",
        "that of a left join",
        "of one table",
    ),
    Kept(
        "a scalar subquery that may have several rows",
        "SELECT o.id, (SELECT v.page FROM visits AS v WHERE v.customer = o.customer) AS page FROM orders AS o",
        ("window", "join"),
        "its rows are counted for each outer row; PostgreSQL raises its own error if a row of the result has several",
        "that of a window and of a left join",
    ),
    Kept(
        "ANY, ALL of a correlated subquery",
        "SELECT o.id FROM orders AS o "
        "WHERE o.quantity > ALL (SELECT v.seconds FROM visits AS v WHERE v.customer = o.customer)",
        ("groups", "join"),
        "count, least and greatest value for each binding",
        "that of min and max, and of a left join",
        "an order that is the same in Spark",
    ),
    Kept(
        "a subquery in ON",
        "SELECT o.id, c.name FROM orders AS o LEFT JOIN customers AS c ON c.id = o.customer "
        "AND EXISTS (SELECT FROM visits AS v WHERE v.customer = c.id)",
        ("join",),
        "joined to the side that it refers to; if it refers to both sides of a LEFT JOIN, as LATERAL",
        "as in WHERE",
    ),
    Kept(
        "a subquery inside an aggregate",
        "SELECT paid, count(*) FILTER (WHERE EXISTS (SELECT FROM visits AS v WHERE v.customer = o.customer)) AS n "
        "FROM orders AS o GROUP BY paid",
        ("groups",),
        "joined to the rows before they are grouped",
        "that of the join and of the aggregate",
    ),
    # -- subqueries that are computed for their bindings --------------------------------------
    Kept(
        "LATERAL correlated by equalities, with LIMIT too",
        "SELECT c.id, l.page FROM customers AS c, "
        "LATERAL (SELECT page FROM visits AS v WHERE v.customer = c.id ORDER BY seconds DESC LIMIT 3) AS l",
        ("window", "join"),
        "the subquery for each of its own keys, joined by them; LIMIT is row_number() by those keys",
        "the partitions that changed, and that of the join",
    ),
    Kept(
        "LATERAL of one row: aggregates correlated by equalities, or a select list alone",
        "SELECT c.id, l.n, l.spent FROM customers AS c, "
        "LATERAL (SELECT count(*) AS n, sum(amount) AS spent FROM orders AS o WHERE o.customer = c.id) AS l",
        ("groups", "join"),
        "more columns of each row: the groups, left joined",
        "that of the aggregate and of the join",
    ),
    Kept(
        "LATERAL and subqueries correlated by any condition",
        "SELECT o.id, (SELECT count(*) FROM visits AS v WHERE v.seconds > o.quantity) AS n FROM orders AS o",
        ("groups", "groups", "join"),
        "the distinct bindings are stored, and the subquery is computed for each of them",
        "a new binding reads the rows that it can match, all rows without an equality; a known one reads its result",
    ),
    Kept(
        "a correlated subquery with GROUP BY, HAVING, LIMIT, DISTINCT, windows or set operations",
        "SELECT o.id FROM orders AS o "
        "WHERE o.customer IN (SELECT v.customer FROM visits AS v WHERE v.page = o.note ORDER BY v.seconds LIMIT 1)",
        ("window", "join"),
        "the bindings are a key of each of them",
        "that of each of them, by key",
    ),
    Kept(
        "a subquery correlated with a query further out",
        "SELECT id FROM orders AS o WHERE EXISTS (SELECT FROM customers AS c WHERE c.id = o.customer "
        "AND EXISTS (SELECT FROM regions AS r WHERE r.id = c.region AND r.name = o.note))",
        ("groups", "join"),
        "as above: each query in between has the bindings in its FROM",
        "that of each of them, by key",
    ),
    # -- groups ----------------------------------------------------------------------------
    Kept(
        "GROUP BY with count, sum, avg over exact numbers",
        "SELECT customer, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM orders GROUP BY customer",
        ("groups",),
        "Spark sends differences, PostgreSQL adds them",
        "that of what is below; no group is read",
        "numeric of any size; of arithmetic across tables `+`, `-` and `*`",
    ),
    Kept(
        "min, max",
        "SELECT customer, min(amount) AS least, max(note) AS last FROM orders GROUP BY customer",
        ("groups",),
        "the extreme is stored; a better one replaces it",
        "a group is read again when its extreme is deleted",
    ),
    Kept(
        "sum, avg over double precision",
        "SELECT customer, sum(weight) AS weight FROM orders GROUP BY customer",
        ("groups",),
        "Spark adds up all rows of each touched group",
        "the rows of the touched groups",
        "real as a holistic aggregate",
    ),
    Kept(
        "count(DISTINCT x); sum and avg of distinct exact numbers",
        "SELECT customer, count(DISTINCT note) AS notes, sum(amount) AS total FROM orders GROUP BY customer",
        ("groups", "groups"),
        "a second block has each value of a group once",
        "that of the rows; together with a holistic aggregate, that of the latter",
        "values of types that can be grouped by",
    ),
    Kept(
        "any other aggregate; DISTINCT, ORDER BY, WITHIN GROUP",
        "SELECT customer, count(DISTINCT note) AS notes, string_agg(note, ', ' ORDER BY id) AS said "
        "FROM orders GROUP BY customer",
        ("holistic",),
        "PostgreSQL computes it over the rows of each touched group",
        "the rows of the touched groups",
        "immutable ones",
    ),
    Kept(
        "ORDER BY of a subquery, view or WITH query in FROM, under array_agg, string_agg, row_number() OVER () "
        "and the like",
        "SELECT customer, string_agg(note, ', ') AS said FROM (SELECT * FROM orders ORDER BY placed) AS o "
        "GROUP BY customer",
        ("holistic",),
        "the order is moved into the call, as PostgreSQL does in practice",
        "that of the aggregate or window",
        "the subquery is the only item of FROM",
    ),
    Kept(
        "ARRAY(subquery)",
        "SELECT c.id, ARRAY(SELECT v.page FROM visits AS v WHERE v.customer = c.id ORDER BY v.seconds) AS pages "
        "FROM customers AS c",
        ("holistic", "join"),
        "array_agg() of a scalar subquery; empty without rows",
        "that of the scalar subquery",
    ),
    Kept(
        "HAVING",
        "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer HAVING sum(amount) > 100",
        ("groups",),
        "all groups are stored, PostgreSQL evaluates it while applying",
        "nothing more",
    ),
    Kept(
        "GROUPING SETS, ROLLUP, CUBE, GROUPING",
        "SELECT customer, paid, sum(amount) AS total FROM orders GROUP BY ROLLUP (customer, paid)",
        ("groups", "groups", "groups", "join"),
        "the UNION ALL of one aggregate per set",
        "that of each set",
    ),
    Kept(
        "the same with DISTINCT, LIMIT or windows; DISTINCT ON with LIMIT",
        "SELECT customer, count(*) AS n FROM orders GROUP BY ROLLUP (customer) ORDER BY count(*) DESC LIMIT 3",
        ("groups", "groups", "rows", "limit", "join"),
        "the first clause below, the others over its rows",
        "that of each step",
    ),
    Kept(
        "GROUP BY a subquery",
        "SELECT count(*) AS n FROM orders AS o GROUP BY (SELECT c.region FROM customers AS c WHERE c.id = o.customer)",
        ("groups",),
        "the subquery becomes a column below",
        "that of the subquery and of the groups",
        "not in GROUPING SETS, nor beside another subquery",
    ),
    Kept(
        "aggregates over aggregates",
        "SELECT avg(t.total) AS mean FROM (SELECT customer, sum(amount) AS total FROM orders GROUP BY customer) AS t",
        ("groups", "groups"),
        "a chain of blocks",
        "that of each block, for what changed in the one below",
    ),
    Kept(
        "a CTE used twice",
        "WITH t AS (SELECT customer, sum(amount) AS total FROM orders GROUP BY customer) "
        "SELECT customer FROM t WHERE total = (SELECT max(total) FROM t)",
        ("groups", "groups", "join"),
        "equal operators share one block",
        "that of each block, once",
    ),
    Kept(
        "DISTINCT",
        "SELECT DISTINCT customer, paid FROM orders",
        ("groups",),
        "a group per row, with a count",
        "that of what is below",
        "columns of types that can be grouped by",
    ),
    Kept(
        "UNION, INTERSECT, EXCEPT",
        "SELECT customer FROM orders EXCEPT SELECT customer FROM visits",
        ("groups",),
        "a group per row, with a count for each side",
        "that of the parts",
        "as DISTINCT",
    ),
    Kept(
        "INTERSECT ALL, EXCEPT ALL",
        "SELECT customer FROM orders EXCEPT ALL SELECT customer FROM visits",
        ("groups", "join"),
        "the same counts; a row is repeated while reading them",
        "that of the parts",
        "as DISTINCT",
    ),
    Kept(
        "VALUES, SELECT without FROM",
        "SELECT o.id, v.word FROM orders AS o JOIN (VALUES (1, 'one'), (2, 'two')) AS v (n, word) ON v.n = o.customer",
        ("join",),
        "constant rows",
        "its rows, if they are needed",
        "constants; together with a table",
    ),
    Kept(
        "functions with column definitions; JSON_TABLE, XMLTABLE",
        "SELECT c.id, r.k, r.v FROM customers AS c, jsonb_to_recordset(c.extra) AS r (k text, v int)",
        ("join",),
        "as any function in FROM",
        "the changed rows",
        "types whose input does not depend on the session",
    ),
    Kept(
        "FROM that begins with a function",
        "SELECT g.n, o.id FROM generate_series(1, 10) AS g (n) LEFT JOIN orders AS o ON o.customer = g.n",
        ("join",),
        "PostgreSQL calls it for one row without columns",
        "its rows, if they are needed",
        "immutable functions",
    ),
    Kept(
        "set-returning functions in the select list, in GROUP BY",
        "SELECT regexp_split_to_table(note, ' ') AS word, count(*) AS n FROM orders GROUP BY 1",
        ("groups",),
        "they move to FROM; several run in parallel, as in ROWS FROM",
        "that of functions in FROM",
        "values, not rows",
    ),
    Kept(
        "functions, casts and operators that depend on session settings: date_trunc, ::date, + interval, to_char, "
        "concat, to_jsonb, to_tsvector, money",
        "SELECT date_trunc('day', placed) AS day, count(*) AS n FROM orders GROUP BY 1",
        ("groups",),
        "the settings are recorded with the stream table, and pinned wherever its query is evaluated",
        "as for immutable functions",
        "[session settings](../explain/session-settings.md)",
    ),
    # -- the time --------------------------------------------------------------------------
    Kept(
        "now(), current_date, current_timestamp, age: in conditions",
        "SELECT id FROM orders WHERE placed > now() - interval '1 day'",
        ("join",),
        "a temporal filter: PostgreSQL evaluates it with the old time and the new",
        "the rows that cross it, by an index on the compared side",
        "the time of the transaction, in the stream table's time zone",
    ),
    Kept(
        "the same in HAVING, in conditions over groups",
        "SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING max(placed) > now() - interval '1 day'",
        ("groups", "join"),
        "the groups are a block with a temporal filter",
        "the groups that cross it",
    ),
    Kept(
        "the same in the select list, in keys and aggregates",
        "SELECT customer, count(*) FILTER (WHERE placed < now()) AS n FROM orders GROUP BY customer",
        ("groups",),
        "the time is joined to every row",
        "all rows, whenever the value computed from the time changes",
    ),
    # -- rows in order ---------------------------------------------------------------------
    Kept(
        "window functions",
        "SELECT id, rank() OVER (PARTITION BY customer ORDER BY amount) AS place FROM orders",
        ("window", "join"),
        "PostgreSQL computes the touched partitions",
        "the rows of the touched partitions, with all columns of their tables; the rows are stored",
        "if the order has ties, PostgreSQL chooses",
    ),
    Kept(
        "several PARTITION BY",
        "SELECT id, sum(amount) OVER (PARTITION BY customer) AS a, count(*) OVER (PARTITION BY paid) AS b FROM orders",
        ("window", "window", "join"),
        "one window over the rows of another",
        "that of each",
    ),
    Kept(
        "a named window, and one that extends it; a frame without BETWEEN",
        "SELECT id, sum(amount) OVER (w ORDER BY id ROWS 3 PRECEDING) AS t FROM orders "
        "WINDOW w AS (PARTITION BY customer)",
        ("window", "join"),
        "the whole window is written after OVER",
        "that of a window",
    ),
    Kept(
        "OVER without PARTITION BY",
        "SELECT id, sum(amount) OVER (ORDER BY id) AS running FROM orders",
        ("window", "join"),
        "one partition",
        "all rows are read, those that differ are written",
    ),
    Kept(
        "DISTINCT ON",
        "SELECT DISTINCT ON (customer) customer, id, amount FROM orders ORDER BY customer, placed DESC",
        ("window", "join"),
        "row_number() = 1; ties are broken by all columns of the select list",
        "that of a window",
    ),
    Kept(
        "ORDER BY with LIMIT and OFFSET",
        "SELECT id, amount FROM orders WHERE paid ORDER BY amount DESC LIMIT 10",
        ("limit", "join"),
        "PostgreSQL reads the first rows; ties are broken by all columns",
        "the first rows by an index in that order, otherwise a sort of the table",
    ),
    Kept(
        "the same of groups",
        "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer ORDER BY total DESC LIMIT 10",
        ("groups", "limit", "join"),
        "the first rows of the block below",
        "that of the groups, and the first rows by an index that Millstream creates",
    ),
    Kept(
        "the same of a join or a union",
        "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON c.id = o.customer ORDER BY c.name LIMIT 3",
        ("rows", "limit", "join"),
        "the rows of the join are materialized first",
        "that of the join, and a copy of its rows",
    ),
    Kept(
        "FETCH FIRST ... WITH TIES",
        "SELECT id FROM orders ORDER BY amount FETCH FIRST 3 ROWS WITH TIES",
        ("limit", "join"),
        "as PostgreSQL reads it",
        "as LIMIT",
    ),
    Kept(
        "WITH RECURSIVE ... UNION",
        "WITH RECURSIVE r AS (SELECT id FROM customers WHERE region = 1 UNION "
        "SELECT v.seconds FROM r JOIN visits AS v ON v.customer = r.id) SELECT id FROM r",
        ("recursion", "join"),
        "rows that lost a derivation, and those derived from them, are deleted, then rederived if possible",
        "the rows that follow from the changed ones, and those that derive them",
        "types with the same equality in Spark",
    ),
    Kept(
        "WITH RECURSIVE ... UNION ALL",
        "WITH RECURSIVE r AS (SELECT id, ARRAY[id] AS path FROM customers WHERE region = 1 UNION ALL "
        "SELECT v.seconds, r.path || v.seconds FROM r JOIN visits AS v ON v.customer = r.id "
        "WHERE v.seconds <> ALL (r.path)) SELECT id, path FROM r",
        ("recursion", "join"),
        "each row with its level; the change of a level follows from the changes and from the level before",
        "the rows that follow from the changed ones",
        "`max_recursion_steps`",
    ),
    Kept(
        "CYCLE of WITH RECURSIVE",
        "WITH RECURSIVE r AS (SELECT id FROM customers WHERE region = 1 UNION ALL "
        "SELECT v.seconds FROM r JOIN visits AS v ON v.customer = r.id) "
        "CYCLE id SET again USING path SELECT id, again FROM r",
        ("recursion", "join"),
        "the path is a column, an array for each column of `CYCLE`",
        "as `UNION ALL`",
        "the path itself is an array of records, which a table cannot store",
    ),
    Kept(
        "SEARCH of WITH RECURSIVE",
        "WITH RECURSIVE r AS (SELECT id FROM customers WHERE region = 1 UNION ALL "
        "SELECT v.seconds FROM r JOIN visits AS v ON v.customer = r.id) "
        "SEARCH DEPTH FIRST BY id SET place SELECT id FROM r ORDER BY place LIMIT 9",
        ("recursion", "limit", "join"),
        "the order is a column: an array, or the number of steps and the columns; omitted if it has no effect",
        "as `UNION ALL`",
        "several columns of `DEPTH FIRST` must have one type",
    ),
)

REFUSED: tuple[Refused, ...] = (
    Refused(
        "the order of SEARCH DEPTH FIRST by columns of several types; columns of SEARCH and CYCLE, except to order by "
        "them and for their cardinality",
        "WITH RECURSIVE r AS (SELECT id, name FROM customers UNION ALL SELECT v.seconds, r.name FROM r "
        "JOIN visits AS v ON v.customer = r.id) SEARCH DEPTH FIRST BY id, name SET place "
        "SELECT id, rank() OVER (ORDER BY place) AS k FROM r",
        "MS102",
        "of several types",
        "one column, or columns of one type",
    ),
    Refused(
        "GROUP BY, DISTINCT, windows, LIMIT over the recursive table in its own term",
        "WITH RECURSIVE r AS (SELECT id FROM regions UNION ALL "
        "SELECT DISTINCT v.seconds FROM r JOIN visits AS v ON v.customer = r.id) SELECT id FROM r",
        "MS102",
        "of the recursive table, in its own term",
        "apply it to the result",
    ),
    Refused(
        "a function in FROM that is joined by USING, or by LEFT JOIN with a subquery in ON",
        "SELECT o.id, g.n FROM orders AS o LEFT JOIN generate_series(1, o.quantity) AS g (n) "
        "ON g.n IN (SELECT customer FROM visits)",
        "MS102",
        "a function in FROM that is joined by USING",
        "join the table and the function in a subquery of FROM",
    ),
    Refused(
        "a subquery in the ON of a FULL JOIN that is correlated with both sides",
        "SELECT o.id, c.name FROM orders AS o FULL JOIN customers AS c ON c.id = o.customer "
        "AND EXISTS (SELECT FROM visits AS v WHERE v.customer = c.id AND v.page = o.note)",
        "MS102",
        "in the ON of a FULL JOIN that is correlated with both sides",
        "a LEFT JOIN, UNION ALL the rows of the other side without a match",
    ),
    Refused(
        "LIMIT or OFFSET of a subquery by a column of an outer query",
        "SELECT c.id, l.page FROM customers AS c, "
        "LATERAL (SELECT page FROM visits AS v WHERE v.customer = c.id LIMIT c.region) AS l",
        "MS102",
        "LIMIT or OFFSET by",
        "row_number(), compared",
    ),
    Refused(
        "an aggregate of the outer query inside a subquery",
        "SELECT customer, (SELECT max(v.seconds) FROM visits AS v WHERE v.seconds < count(o.id)) AS m "
        "FROM orders AS o GROUP BY customer",
        "MS102",
        "an aggregate of the outer query",
        "the aggregate in a subquery of FROM",
    ),
    Refused(
        "conditions on how a group key is written, over GROUPING SETS or on the optional side of an outer join",
        "SELECT f, customer, count(*) AS n FROM (SELECT id::float8 AS f, customer FROM orders) AS q "
        "GROUP BY f, ROLLUP (customer) HAVING f::text = '0'",
        "MS102",
        "a condition on how a group key is written",
        "the condition in the `WHERE` clause of the query that groups",
    ),
    Refused(
        "array_agg, string_agg, row_number() OVER () and the like over a sorted subquery that is joined",
        "SELECT c.id, array_agg(o.id) AS ids FROM customers AS c JOIN (SELECT * FROM orders ORDER BY placed) AS o "
        "ON o.customer = c.id GROUP BY c.id",
        "MS102",
        "without an ORDER BY of its own",
        "the order in the call: `array_agg(o.id ORDER BY o.placed)`",
    ),
    Refused(
        "a query without columns",
        "SELECT FROM orders",
        "MS102",
        "a query without columns",
        "`SELECT 1 AS one`",
    ),
    Refused(
        "a condition over three tables that Spark cannot evaluate, not joined by equalities",
        "SELECT o.id FROM orders AS o CROSS JOIN customers AS c JOIN regions AS r ON o.note || c.name LIKE r.name",
        "MS102",
        "over several tables",
        "an expression of one table",
    ),
    Refused(
        "grouping by citext, an array of numeric or float, or text of a nondeterministic collation",
        "SELECT DISTINCT ARRAY[rate] AS rates FROM orders",
        "MS102",
        "grouping by",
        "its text",
    ),
    Refused(
        "a query without a table", "SELECT 1 AS one", "MS102", "a query without a table", "a view"
    ),
    Refused(
        "a whole row of a subquery, of a function, or beside GROUP BY a primary key",
        "SELECT count(q.*) AS n FROM (SELECT id FROM orders) AS q",
        "MS102",
        "a reference to a whole row",
        "its columns",
    ),
    Refused(
        "system columns",
        "SELECT id, xmin FROM orders",
        "MS102",
        "system column",
        "columns of the table",
    ),
    Refused(
        "FROM ONLY",
        "SELECT id FROM ONLY orders",
        "MS102",
        "FROM ONLY",
        "the table with its children",
    ),
    Refused(
        "TABLESAMPLE",
        "SELECT id FROM orders TABLESAMPLE SYSTEM (10)",
        "MS102",
        "TABLESAMPLE",
        "the whole table",
    ),
    Refused(
        "FOR UPDATE, FOR SHARE",
        "SELECT id FROM orders FOR UPDATE",
        "MS102",
        "FOR UPDATE",
        "nothing",
    ),
    Refused(
        "current_user and its like",
        "SELECT id FROM customers WHERE name = current_user",
        "MS102",
        "current_user and its like",
        "a filter in a view over the stream table",
    ),
    Refused(
        "stable functions that depend on more than session settings: statement_timestamp(), pg_typeof(x)",
        "SELECT customer, pg_typeof(placed) AS type FROM orders",
        "MS103",
        "is stable, not immutable",
        "an immutable expression",
    ),
    Refused(
        "volatile functions",
        "SELECT id FROM orders WHERE random() < 0.5",
        "MS103",
        "is volatile, not immutable",
        "an immutable expression",
    ),
    Refused(
        "system catalogs, temporary and foreign tables, materialized views",
        "SELECT relname FROM pg_class",
        "MS104",
        "cannot be a source",
        "a table of your own",
    ),
)
