"""A double of the planning server: the compiler's blocks and placement run without a database.

    orders = table("orders", "id int8, customer int4, amount numeric(12,2)", key="id")
    blocks = split_into_blocks(relation, columns, PlanningServerDouble())

It infers the type of an expression from columns, constants, casts, operators and a few functions.
It does not guess: for any other expression the test gives the type (or the value), and without it
the double raises LookupError.

>>> [str(type_) for type_ in PlanningServerDouble().types([Expr("1 + 2.5"), Expr("lower('A') = 'a'")], [])]
['numeric', 'boolean']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType

from sqlglot import exp

from millstream.algebra.block import Block, GroupedBlock
from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, ref_of, unwrapped
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows, SourceTable
from millstream.algebra.types import Column, PgType
from millstream.compiler.server.questions import Constant

_NAMES = {
    "bool": (16, "boolean"), "int8": (20, "bigint"), "int2": (21, "smallint"), "int4": (23, "integer"),
    "text": (25, "text"), "json": (114, "json"), "float4": (700, "real"), "float8": (701, "double precision"),
    "bpchar": (1042, "character"), "varchar": (1043, "character varying"), "date": (1082, "date"),
    "timestamp": (1114, "timestamp without time zone"), "timestamptz": (1184, "timestamp with time zone"),
    "numeric": (1700, "numeric"), "jsonb": (3802, "jsonb"),
}  # fmt: skip
_WORDS = {name: base for base, (_, name) in _NAMES.items()} | {"int": "int4", "decimal": "numeric"}
# Arithmetic has the type of the operand that stands last here.
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_CONDITIONS = (
    exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Between, exp.In, exp.Like, exp.Boolean,
)  # fmt: skip
# Operators whose result may be known although an operand is NULL.
_NOT_STRICT = (exp.Connector, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)
_FUNCTIONS = {
    "lower": "text",
    "upper": "text",
    "length": "int4",
    "scale": "int4",
    "starts_with": "bool",
}
_OF_ARGUMENT = frozenset({"abs", "round", "trunc", "greatest", "least"})
# Functions that return NULL if an argument is NULL.
_STRICT_FUNCTIONS = frozenset({*_FUNCTIONS, "abs", "round", "trunc"})
_DECLARED = re.compile(r"^\s*([a-zA-Z0-9_ ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*$")
_COLUMN = re.compile(r"\s*(\w+)\s+((?:[^,(]|\([^)]*\))+)")
_oids = count(1)


def pg_type(text: str) -> PgType:
    """Return the type of a declaration: `int4`, `integer`, `numeric(12,2)`."""
    match = _DECLARED.match(text)
    word = match[1].lower() if match else text
    base = _WORDS.get(word, word)
    if match is None or base not in _NAMES:
        raise LookupError(f"the double knows no type {text}")
    oid, name = _NAMES[base]
    if base == "numeric" and match[2]:
        precision, scale = int(match[2]), int(match[3] or 0)
        return PgType(oid, f"numeric({precision},{scale})", base, precision=precision, scale=scale)
    return PgType(oid, f"{name}({match[2]})" if match[2] else name, base)


def single_row(name: str, columns: str) -> BlockRows:
    """Return the one row of a block."""
    listed = tuple(Column(match[1], pg_type(match[2])) for match in _COLUMN.finditer(columns))
    return BlockRows(listed, block=0, relation_name=name, single=True)


def table(name: str, columns: str, *, key: str = "") -> SourceTable:
    """Return a table of schema public; `key` lists columns, which are NOT NULL then."""
    names = tuple(key.split())
    listed = tuple(
        Column(match[1], pg_type(match[2]), match[1] in names)
        for match in _COLUMN.finditer(columns)
    )
    return SourceTable(listed, oid=next(_oids), schema="public", name=name, key=names)


class PlanningServerDouble:
    """A `PlanningServer` that answers by inference, or as the test tells it.

    `known_types` and `known_values` map the text of an expression to its type or value. `blocks`
    are the blocks that were declared, in order.
    """

    def __init__(
        self,
        known_types: Mapping[str, PgType] = MappingProxyType({}),
        known_values: Mapping[str, Constant] = MappingProxyType({}),
    ) -> None:
        self.known_types = known_types
        self.known_values = known_values
        self.blocks: list[Block] = []

    def types(self, expressions: Sequence[Expr], scans: Sequence[Scan]) -> tuple[PgType, ...]:
        """Return the types of expressions over these tables."""
        columns = {
            Ref(scan.alias, column.name): column.type
            for scan in scans
            for column in scan.table.columns
        }
        return tuple(self._type(expression.tree, columns) for expression in expressions)

    def values(self, expressions: Sequence[str]) -> tuple[Constant, ...]:
        """Return the values of constants; of a strict operator or function with an operand that is
        NULL, NULL.
        """
        return tuple(self._value(text) for text in expressions)

    def declare(self, block: Block) -> BlockRows:
        """Return the rows of an inner block as a table."""
        self.blocks.append(block)
        columns = _columns_of(block)
        outputs = [
            Column(output.column.name, self._type(Expr(output.expr).tree, columns))
            for output in block.outputs
        ]
        return BlockRows(
            tuple(outputs), block=block.position, relation_name=f"block_{block.position}"
        )

    def _type(self, node: exp.Expression, columns: Mapping[Ref, PgType]) -> PgType:
        node = unwrapped(node)
        text = printed(node)
        if text in self.known_types:
            return self.known_types[text]
        if isinstance(node, _CONDITIONS):
            return pg_type("bool")
        for kind, rule in _RULES.items():
            if isinstance(node, kind):
                type_ = rule(node, lambda child: self._type(child, columns), columns)
                if type_ is not None:
                    return type_
        raise LookupError(f"the double cannot tell the type of {text}: give it in `known_types`")

    def _value(self, text: str) -> Constant:
        if text in self.known_values:
            return self.known_values[text]
        node = unwrapped(Expr(text).tree)
        while isinstance(node, exp.Cast):
            node = unwrapped(node.this)
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string or "." in node.name else int(node.name)
        if isinstance(node, exp.Null):
            return None
        if _is_strict(node) and any(
            self._value(printed(operand)) is None for operand in node.iter_expressions()
        ):
            return None
        raise LookupError(f"the double cannot evaluate {text}: give it in `known_values`")


def _is_strict(node: exp.Expression) -> bool:
    """Return True for an operator or a function that is NULL if an operand is."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _STRICT_FUNCTIONS
    return isinstance(node, exp.Binary | exp.Neg) and not isinstance(node, _NOT_STRICT)


def _columns_of(block: Block) -> dict[Ref, PgType]:
    """Return the columns that the outputs of a block are over: of its body, its state, its group
    rows, its inputs.
    """
    columns = {
        Ref(alias, column.name): column.type for alias in ("d", "r") for column in block.columns
    }
    for input_ in block.inputs():
        columns |= {
            Ref(input_.scan.alias, column.name): column.type for column in input_.scan.table.columns
        }
    if isinstance(block, GroupedBlock):
        columns |= {Ref("s", key.name): key.type for key in block.head.keys}
        columns |= {
            Ref("s", accumulator.name): accumulator.type for accumulator in block.head.accumulators
        }
    return columns


_TypeOf = Callable[[exp.Expression], PgType]
_Rule = Callable[[exp.Expression, _TypeOf, Mapping[Ref, PgType]], PgType | None]


def _column(node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]) -> PgType | None:
    assert isinstance(node, exp.Column)
    return columns.get(ref_of(node))


def _literal(node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]) -> PgType:
    assert isinstance(node, exp.Literal)
    if node.is_string:
        return pg_type("text")
    if not node.name.isdigit():
        return pg_type("numeric")
    return pg_type("int4" if int(node.name) < 2**31 else "int8")


def _cast(node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]) -> PgType:
    return pg_type(printed(node.args["to"]))


def _arithmetic(
    node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]
) -> PgType | None:
    bases = [type_of(child).base for child in node.iter_expressions()]
    if any(base not in _NUMBERS for base in bases):
        return None
    return pg_type(max(bases, key=_NUMBERS.index))


def _case(node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]) -> PgType | None:
    values = [branch.args["true"] for branch in node.args["ifs"]]
    return _first([*values, node.args.get("default")], type_of)


def _coalesce(
    node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]
) -> PgType | None:
    return _first([node.this, *node.expressions], type_of)


def _first(values: Sequence[exp.Expression | None], type_of: _TypeOf) -> PgType | None:
    known = (
        value
        for value in values
        if value is not None and not isinstance(unwrapped(value), exp.Null)
    )
    value = next(known, None)
    return type_of(value) if value is not None else None


def _function(
    node: exp.Expression, type_of: _TypeOf, columns: Mapping[Ref, PgType]
) -> PgType | None:
    name = node.name.lower()
    if name in _OF_ARGUMENT:
        return type_of(node.expressions[0]).unwrapped()
    return pg_type(_FUNCTIONS[name]) if name in _FUNCTIONS else None


_RULES: dict[type[exp.Expression], _Rule] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Null: lambda node, type_of, columns: pg_type("text"),
    exp.Cast: _cast,
    exp.Neg: _arithmetic,
    exp.Add: _arithmetic,
    exp.Sub: _arithmetic,
    exp.Mul: _arithmetic,
    exp.Div: _arithmetic,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Count: lambda node, type_of, columns: pg_type("int8"),
    exp.Anonymous: _function,
}
