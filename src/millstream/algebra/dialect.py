"""PostgreSQL as the server prints it: read and written word for word.

sqlglot translates between dialects, so it rewrites functions that it knows: substr() becomes
SUBSTRING(... FROM ...), mod(x, 2) becomes x % 2. The server's own text must come out as it went in.
This dialect understands only the aggregates that Millstream maintains, and functions with a grammar
of their own; every other function is a name and its arguments.

>>> printed(parsed("SELECT substr(t, 1), mod(x, 2), \\"left\\"(t, 1)"))
'SELECT substr(t, 1), mod(x, 2), "left"(t, 1)'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

# sqlglot's callables differ in their parameters, and are only passed on.
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp, parser
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from millstream.algebra.special_calls import (
    SpecialAggregate,
    SpecialCall,
    is_special,
    parse_special_call,
    print_special_call,
    wrapped,
)
from millstream.algebra.table import quoted
from millstream.algebra.tokens import PrefixOperator, as_postgresql_reads

if not str(parser.__file__).endswith(".py"):
    raise ImportError(
        "Millstream extends sqlglot's parser, which is impossible if it is compiled: pip uninstall sqlglotc"
    )

_UNDERSTOOD = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE"})
_GRAMMAR = frozenset({"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM"})

_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")

# Of the type interval.
_FIELDS = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO"})

# Keys for the SEARCH and CYCLE clauses of a WITH query: sqlglot knows them for the last query and
# one column only.
SEARCH, CYCLE = "ms_search", "ms_cycle"
# Key for the name that `JOIN ... USING (k) AS name` gives to the merged columns. The server names it
# nowhere else: it prints their own names.
USING_ALIAS = "ms_using_alias"
# Key for the operator of ORDER BY ... USING.
ORDER_USING = "ms_order_using"


@dataclass(frozen=True)
class SearchClause:
    """`SEARCH DEPTH FIRST BY by SET name`, or breadth first."""

    depth: bool
    by: tuple[str, ...]
    name: str
    columns: tuple[exp.Expr, ...] = field(default=(), compare=False, repr=False)
    """The syntax nodes of `by`."""

    @property
    def sql(self) -> str:
        return f"SEARCH {'DEPTH' if self.depth else 'BREADTH'} FIRST BY {_listed(self.by)} SET {_listed([self.name])}"


@dataclass(frozen=True)
class CycleClause:
    """`CYCLE by SET mark TO value DEFAULT other USING path`; the values may be left out, both."""

    by: tuple[str, ...]
    mark: str
    to: str
    default: str
    path: str
    columns: tuple[exp.Expr, ...] = field(default=(), compare=False, repr=False)
    """The syntax nodes of `by`."""

    @property
    def sql(self) -> str:
        values = f" TO {_constant(self.to)} DEFAULT {_constant(self.default)}" if self.to else ""
        return f"CYCLE {_listed(self.by)} SET {_listed([self.mark])}{values} USING {_listed([self.path])}"


def _names(columns: Iterable[exp.Expr]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


class Verbatim(Postgres):
    """The dialect of `pg_get_viewdef`."""

    NORMALIZE_FUNCTIONS: bool | str = False
    # An array's subscript is printed as it was read; sqlglot would shift it and guess when to shift
    # back.
    INDEX_OFFSET = 0

    def tokenize(self, sql: str, dialect: Any = None) -> list[Token]:
        return as_postgresql_reads(super().tokenize(sql, dialect), sql)

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            name: made for name, made in PostgresParser.FUNCTIONS.items() if name in _UNDERSTOOD
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in PostgresParser.FUNCTION_PARSERS.items()
            if name in _GRAMMAR
        }

        UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
            **PostgresParser.UNARY_PARSERS,
            TokenType.OPERATOR: lambda self: self._parse_prefix_operator(),
        }
        # "bit" is a bit string of any length, and bit is one of length 1.
        QUOTED_TYPES_TO_PRESERVE: ClassVar[set[str]] = {
            *PostgresParser.QUOTED_TYPES_TO_PRESERVE,
            "bit",
        }

        def _parse_types(self, *args: Any, **options: Any) -> exp.Expr | None:
            return self._parse_interval_type() or super()._parse_types(*args, **options)

        def _parse_interval_type(self) -> exp.Expr | None:
            """Read the type `interval day to second(3)`: sqlglot knows neither two fields nor a
            precision.
            """
            start = self._curr
            if not start or start.token_type != TokenType.INTERVAL or not self._next:
                return None
            if self._next.text.upper() not in {*_FIELDS, "("}:
                return None
            self._advance()
            while self._curr and self._curr.text.upper() in _FIELDS:
                self._advance()
            if self._match(TokenType.L_PAREN):
                self._advance(2)
            interval = exp.DataType(
                this=exp.DType.USERDEFINED, kind=self._find_sql(start, self._prev)
            )
            is_array = self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET)
            return (
                exp.DataType(this=exp.DType.ARRAY, expressions=[interval], nested=True)
                if is_array
                else interval
            )

        def _parse_type_size(self) -> exp.DataTypeParam | None:
            """Read a negative scale too: numeric(5,-2)."""
            sign = "-" if self._match(TokenType.DASH) else ""
            size = super()._parse_type_size()
            return exp.DataTypeParam(this=exp.var(sign + size.name)) if size and sign else size

        def _parse_null(self) -> exp.Expr | None:
            # IS UNKNOWN is not the server's IS NULL, although they mean the same.
            return exp.var("UNKNOWN") if self._match(TokenType.UNKNOWN) else super()._parse_null()

        def _parse_operator(self, this: exp.Expr | None) -> exp.Expr | None:
            if not self._match(TokenType.L_PAREN):
                return super()._parse_operator(this)
            operator = self._parse_operator_name()
            return self.expression(
                exp.Operator(this=this, operator=operator, expression=self._parse_bitwise())
            )

        def _parse_prefix_operator(self) -> exp.Expr:
            self._match(TokenType.L_PAREN)
            operator = self._parse_operator_name()
            return self.expression(PrefixOperator(this=self._parse_unary(), operator=operator))

        def _parse_operator_name(self) -> str:
            """Return the name up to the closing parenthesis, with its schema and quotes if it has
            them.
            """
            start = self._curr
            while self._curr and not self._match(TokenType.R_PAREN, advance=False):
                self._advance()
            name = self._find_sql(start, self._prev)
            self._match(TokenType.R_PAREN)
            return name

        def _parse_function_call(
            self,
            functions: Any = None,
            anonymous: bool = False,
            optional_parens: bool = True,
            any_token: bool = False,
        ) -> exp.Expr | None:
            # A quoted name is a plain name, even if the bare word has a grammar.
            quoted = self._curr is not None and self._curr.token_type == TokenType.IDENTIFIER
            if not quoted and (special := self._parse_special()):
                return special
            call = super()._parse_function_call(
                functions, anonymous or quoted, optional_parens, any_token
            )
            # sqlglot parses ALL (array) as a function, but not ANY (array).
            if (
                isinstance(call, exp.Anonymous)
                and call.this == "ALL"
                and len(call.expressions) == 1
            ):
                return exp.All(this=exp.Paren(this=call.expressions[0]))
            return _with_argument_names(call)

        def _parse_special(self) -> exp.Expr | None:
            """Read a call with a grammar of its own; None before anything else."""
            if not self._curr or self._next.token_type != TokenType.L_PAREN:
                return None
            if not is_special(self._curr.text):
                return None
            # JSON_ARRAYAGG has FILTER and OVER.
            return self._parse_window(parse_special_call(self))

        def _parse_unary(self) -> exp.Expr | None:
            if self._match_text_seq("COLLATION", "FOR"):
                operand = self._parse_wrapped(self._parse_bitwise)
                return wrapped(("COLLATION FOR (", ")"), operand)
            return super()._parse_unary()

        def _parse_substring(self) -> Any:
            start = self._index
            text = self._parse_bitwise()
            if not self._match_text_seq("SIMILAR"):
                self._retreat(start)
                return super()._parse_substring()
            pattern = self._parse_bitwise()
            self._match_text_seq("ESCAPE")
            operands = [text, pattern, self._parse_bitwise()]
            texts = ["SUBSTRING(", "SIMILAR", "ESCAPE", ")"]
            return SpecialCall(expressions=operands, texts=texts)

        def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
            if self._match_text_seq("AT", "LOCAL"):
                return self._parse_at_time_zone(wrapped(("", "AT LOCAL"), this))
            return super()._parse_at_time_zone(this)

        def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
            start = self._index
            negated = "NOT " if self._match(TokenType.NOT) else ""
            form = f"{self._prev.text.upper()} " if self._match_texts(_NORMAL_FORMS) else ""
            if self._match_texts(("NORMALIZED", "DOCUMENT")):
                return wrapped(("", f"IS {negated}{form}{self._prev.text.upper()}"), this)
            self._retreat(start)
            return super()._parse_is(this)

        def _parse_ordered(self, *args: Any, **options: Any) -> exp.Ordered | None:
            ordered = super()._parse_ordered(*args, **options)
            if ordered is None or not self._match(TokenType.USING):
                return ordered
            ordered.set(ORDER_USING, self._parse_ordering_operator())
            ordered.set("nulls_first", bool(self._match_text_seq("NULLS", "FIRST")))
            self._match_text_seq("NULLS", "LAST")
            return ordered

        def _parse_ordering_operator(self) -> str:
            if self._match(TokenType.OPERATOR):
                self._match(TokenType.L_PAREN)
                return self._parse_operator_name()
            self._advance()
            return self._prev.text

        def _parse_wrapped_select(self, table: bool = False) -> exp.Expr | None:
            # (LATERAL (...) AS a JOIN b ON ...): sqlglot expects no join after LATERAL or UNNEST there.
            item = super()._parse_wrapped_select(table)
            if isinstance(item, exp.Lateral | exp.Unnest):
                item.set("joins", list(self._parse_joins()))
            return item

        def _parse_column_ops(self, this: Any) -> Any:  # sqlglot passes on what it is given
            found = super()._parse_column_ops(this)
            if isinstance(found, exp.Window) and isinstance(found.this, exp.Dot):
                found.set("this", _qualified_call(found.this.this, found.this.expression))
                return found
            if isinstance(found, exp.Dot):
                return _qualified_call(found.this, found.expression)
            if isinstance(found, exp.Column) and isinstance(
                found.this, exp.Filter | exp.WithinGroup
            ):
                return _qualified_call(found.args["table"], found.this)
            return found

        def _parse_lateral(self) -> exp.Lateral | None:
            # A function in FROM is lateral without the word, and sqlglot does not understand
            # LATERAL ROWS FROM.
            start = self._index
            if self._match(TokenType.LATERAL) and self._match_text_seq(
                "ROWS", "FROM", advance=False
            ):
                return None
            self._retreat(start)
            return super()._parse_lateral()

        def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
            join = super()._parse_join(*args, **options)
            if join is not None and join.args.get("using") and self._match(TokenType.ALIAS):
                join.set(USING_ALIAS, self._parse_id_var())
            return join

        def _parse_cte(self) -> Any:  # sqlglot says CTE, or a function of other dialects
            cte = super()._parse_cte()
            if isinstance(cte, exp.CTE) and self._match_text_seq("SEARCH"):
                cte.set(SEARCH, self._parse_search())
            if isinstance(cte, exp.CTE) and self._match_text_seq("CYCLE"):
                cte.set(CYCLE, self._parse_cycle())
            return cte

        def _parse_search(self) -> SearchClause:
            depth = bool(self._match_text_seq("DEPTH"))
            self._match_text_seq("BREADTH")
            self._match_text_seq("FIRST", "BY")
            columns = self._parse_columns()
            name = self._parse_name_after("SET")
            return SearchClause(depth, _names(columns), name, columns)

        def _parse_cycle(self) -> CycleClause:
            columns, mark = self._parse_columns(), self._parse_name_after("SET")
            to = self._match_text_seq("TO") and self._parse_bitwise()
            default = self._match(TokenType.DEFAULT) and self._parse_bitwise()
            value, other = (
                printed(one) if isinstance(one, exp.Expression) else "" for one in (to, default)
            )
            path = self._parse_name_after("USING")
            return CycleClause(_names(columns), mark, value, other, path, columns)

        def _parse_columns(self) -> tuple[exp.Expr, ...]:
            return tuple(self._parse_csv(self._parse_id_var))

        def _parse_name_after(self, word: str) -> str:
            self._match_text_seq(word)
            name = self._parse_id_var()
            assert name is not None, f"a name after {word}"
            return name.name

        def _values_to_select(
            self, values: exp.Values
        ) -> Any:  # sqlglot says Select, and passes it on
            # VALUES is a query of its own, and stays one.
            return values

    class Generator(PostgresGenerator):
        # DISTINCT in an aggregate stands before all its arguments: string_agg(DISTINCT x, ',').
        MULTI_ARG_DISTINCT = True
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **PostgresGenerator.TRANSFORMS,
            exp.Pow: lambda self, node: self.binary(node, "^"),
            exp.Operator: lambda self, node: (
                f"{self.sql(node.this)} {_operator(node)} {self.sql(node.expression)}"
            ),
            PrefixOperator: lambda self, node: f"{_operator(node)} {self.sql(node.this)}",
            SpecialCall: lambda self, node: self.special_call_sql(node),
            SpecialAggregate: lambda self, node: self.special_call_sql(node),
            exp.CurrentTime: lambda self, node: "CURRENT_TIME",
            exp.All: lambda self, node: f"ALL({self.sql(node.this.unnest())})",
        }

        def cte_sql(self, expression: exp.CTE) -> str:
            clauses = (expression.args.get(SEARCH), expression.args.get(CYCLE))
            return " ".join([super().cte_sql(expression), *(one.sql for one in clauses if one)])

        def special_call_sql(self, node: SpecialCall) -> str:
            operands = [self.sql(_operand(operand)) for operand in node.expressions]
            return print_special_call(node, operands)

        def trim_sql(self, expression: exp.Trim) -> str:
            """Print TRIM(LEADING FROM x): sqlglot makes ltrim(x) of it, another call to the server."""
            if expression.expression or not expression.args.get("position"):
                return super().trim_sql(expression)
            return f"TRIM({self.sql(expression, 'position')} FROM {self.sql(expression, 'this')})"

        def ordered_sql(self, expression: exp.Ordered) -> str:
            if not expression.args.get(ORDER_USING):
                return super().ordered_sql(expression)
            operator = _operator(expression, ORDER_USING)
            nulls = "FIRST" if expression.args.get("nulls_first") else "LAST"
            return f"{self.sql(expression, 'this')} USING {operator} NULLS {nulls}"

        def lateral_sql(self, expression: exp.Lateral) -> str:
            return super().lateral_sql(expression) + self._joins_sql(expression)

        def unnest_sql(self, expression: exp.Unnest) -> str:
            return super().unnest_sql(expression) + self._joins_sql(expression)

        def _joins_sql(self, expression: exp.Expression) -> str:
            return "".join(self.sql(join) for join in expression.args.get("joins") or ())

        def tablealias_sql(self, expression: exp.TableAlias) -> str:
            """Print column definitions without a name, in ROWS FROM: f(x) AS (a int)."""
            if expression.this:
                return super().tablealias_sql(expression)
            return f"({self.expressions(expression, key='columns', flat=True)})"

        def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
            alias = expression.args.get(USING_ALIAS)
            text = super().join_sql(expression, join_op)
            return f"{text} AS {self.sql(alias)}" if alias is not None else text

        def windowspec_sql(self, expression: exp.WindowSpec) -> str:
            """Print a frame without BETWEEN as it was read: ROWS 3 PRECEDING."""
            if expression.args.get("end"):
                return super().windowspec_sql(expression)
            parts = [self.sql(expression, part) for part in ("kind", "start", "start_side")]
            exclude = self.sql(expression, "exclude")
            return " ".join(filter(None, [*parts, exclude and f"EXCLUDE {exclude}"]))

        def not_sql(self, expression: exp.Not) -> str:
            """Print IS NOT and !~ as operators; the server prints any other NOT before parentheses."""
            inner = expression.this
            if isinstance(inner, exp.Is) and not inner.args.get("negate"):
                return f"{self.sql(inner, 'this')} IS NOT {self.sql(inner, 'expression')}"
            if isinstance(inner, exp.RegexpLike | exp.RegexpILike) and not inner.args.get("flag"):
                operator = "!~" if isinstance(inner, exp.RegexpLike) else "!~*"
                return f"{self.sql(inner, 'this')} {operator} {self.sql(inner, 'expression')}"
            return super().not_sql(expression)


def _with_argument_names(call: exp.Expr | None) -> exp.Expr | None:
    """Return a call in which the names of arguments, f(days => 3), are no columns."""
    for argument in call.expressions if isinstance(call, exp.Anonymous) else ():
        if isinstance(argument, exp.Kwarg) and isinstance(argument.this, exp.Column):
            argument.set("this", argument.this.this)
    return call


def _operand(node: exp.Expr) -> exp.Expr:
    """Return an operand in parentheses, unless it needs none beside words such as ON ERROR."""
    simple = exp.Column | exp.Literal | exp.Paren | exp.Null | exp.Boolean | exp.Func | exp.Ordered
    needs_none = isinstance(node, simple) and not isinstance(node, exp.Binary)
    return node if needs_none else exp.Paren(this=node.copy())


def _qualified_call(schema: Any, call: Any) -> exp.Expression:
    """Return schema.f(x) FILTER (...): the schema belongs to the name of the function, not to the
    filtered call.
    """
    if not isinstance(call, exp.Filter | exp.WithinGroup):
        return exp.Dot(this=schema, expression=call)
    call.set("this", _qualified_call(schema, call.this))
    return call


def _operator(node: exp.Expression, key: str = "operator") -> str:
    """Return the name of an operator; OPERATOR(schema.name) where it has a schema."""
    name: str = node.args[key]
    return f"OPERATOR({name})" if "." in name else name


# One instance for all: making one takes longer than printing a column.
_VERBATIM = Verbatim()


def _constant(text: str) -> str:
    """Return a constant as CYCLE takes it: the server prints 'Y'::text, but reads only text 'Y'."""
    value = parsed(f"SELECT {text}").expressions[0]
    if isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal):
        return f"{printed(value.to)} {printed(value.this)}"
    return "NULL" if isinstance(value, exp.Cast) and isinstance(value.this, exp.Null) else text


def parsed(text: str) -> exp.Expression:
    """Return the syntax tree of a statement that the server printed."""
    tree = sqlglot.parse_one(text, read=_VERBATIM)
    assert isinstance(tree, exp.Expression)
    return tree


def printed(tree: exp.Expression) -> str:
    """Return the text of a tree, for the server to read."""
    return tree.sql(dialect=_VERBATIM)
