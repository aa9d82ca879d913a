"""Place each part of an expression: over one table in PostgreSQL, across tables in Spark.

The largest parts over one table become leaf columns, whatever they contain: PostgreSQL computes
them while reading. The operators that combine them across tables must be ones that Spark computes
exactly as PostgreSQL does, listed in `SPARK_EXACT` of `spark_exact.py`. Any other expression is
refused by name.

    o.qty * p.price > lower(c.limit)::int   ->   leaves o.qty, p.price, lower(c.limit)::int
                                                 Spark  i0_c0 * i1_c0 > i2_c0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from millstream.algebra.block import Input, Leaf, Use, wire_for
from millstream.algebra.expr import Expr, Ref, is_quantified, is_record, transform, unwrapped
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows, Clock
from millstream.algebra.temporal_filter import TemporalFilter
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire, wire_of
from millstream.compiler.blocks.region import BranchNames, OuterJoin, Region
from millstream.compiler.placement.decimals.declared import Digits, digits_of, digits_of_type
from millstream.compiler.placement.decimals.unbounded import is_unbounded, is_unbounded_column
from millstream.compiler.placement.placement import (
    BOOL,
    TEXT,
    Placement,
    literal,
    refuse_across_tables,
    refuse_before_join,
    refuse_number,
    refuse_row,
)
from millstream.compiler.placement.row_comparison import expand_row_comparison, listed_values
from millstream.compiler.placement.row_error import Unforeseen, row_error
from millstream.compiler.placement.spark_exact import SPARK_EXACT, children, spine
from millstream.compiler.refusal import accepted, collect
from millstream.compiler.server.questions import Constant, PlanningServer
from millstream.errors import Unsupported

# An expression for PostgreSQL, and the placement of each of its columns.
OverColumns = tuple[Expr, dict[Ref, Placement]]


@dataclass(frozen=True)
class PlacerOptions:
    """How the expressions of a branch are placed."""

    first: int = 0
    """The number of the branch's first input: i0, i1, ..."""
    sharpen: bool = True
    """Give a numeric type the digits that follow from the declared digits of its columns."""
    lenient: bool = False
    """Let Spark compute with numerics that may have more digits than its decimals: a value that
    does is an error.

    PostgreSQL may then also evaluate expressions for rows that a join discards.
    """


DEFAULT_OPTIONS = PlacerOptions()


class Placer:
    """Places the expressions of one branch, and collects their leaf columns."""

    def __init__(
        self,
        branch_names: BranchNames,
        expressions: Sequence[Expr],
        server: PlanningServer,
        options: PlacerOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.branch_names = branch_names
        self.scans = branch_names.scans
        self.names = {alias: f"i{number}" for number, alias in enumerate(self.scans, options.first)}
        self.leaves: dict[str, dict[tuple[Expr, str], Leaf]] = {alias: {} for alias in self.scans}
        self.server = server
        self.lenient = options.lenient
        self._around: tuple[OuterJoin, ...] = ()
        self._errors: dict[Expr, Expr | Unforeseen | None] = {}
        self._eager = options.lenient
        self.types = self._types_of_parts(expressions)
        if options.sharpen:
            self.types = {part: self._sharpened(part, type_) for part, type_ in self.types.items()}

    def _types_of_parts(self, expressions: Sequence[Expr]) -> dict[Expr, PgType]:
        """Return the types of the parts of expressions that are over one table, and of the marks."""
        parts = list(
            dict.fromkeys(part for expression in expressions for part in self.parts(expression))
        )
        expanded = [self.branch_names.expanded(part) for part in parts]
        types = accepted(self._types(expanded)) if parts else ()
        marks = {Expr(ref.sql): BOOL for ref in self.branch_names.marks}
        return dict(zip(parts, types, strict=True)) | marks

    def parts(self, expression: Expr) -> Iterator[Expr]:
        """Yield the largest parts of an expression that are over at most one table."""
        if self._is_mark(expression):
            return
        if self.is_over_one_table(expression):
            yield Expr.of(unwrapped(expression.tree))
        elif isinstance(unwrapped(expression.tree), exp.Subquery):
            for column in sorted(expression.refs):
                yield from self.parts(Expr(column.sql))
        elif (ref := expression.as_ref) is not None:
            yield from self.parts(self.branch_names.definition(ref))
        else:
            node = self._spelled(unwrapped(expression.tree))
            first, *operators = self.chain(node)
            for child in (
                [first, *(one.expression for one in operators)] if operators else children(node)
            ):
                yield from self.parts(Expr.of(child))

    def chain(self, node: exp.Expression) -> list[exp.Expression]:
        """Return the spine of a chain of operators, beginning with its longest part over at most
        one table.
        """
        found = spine(node)
        homes, place = self.branch_names.homes(Expr.of(found[0])), 0
        if len(found) == 1 or not self.is_over_one_table(Expr.of(found[0])):
            return found
        for operator in found[1:]:
            right = Expr.of(operator.expression)
            homes |= self.branch_names.homes(right)
            if len(homes) > 1 or not self.is_over_one_table(right):
                break
            place += 1
        return found[place:]

    def is_over_one_table(self, expression: Expr) -> bool:
        """Return True if an expression is over one table at most: a value, and not a mark or an
        anonymous row.
        """
        homes = self.branch_names.homes(expression)
        one = len(homes) <= 1 and homes <= self.scans.keys()
        return one and not is_record(self.branch_names.expanded(expression).tree)

    def _is_mark(self, expression: Expr) -> bool:
        return expression.as_ref in self.branch_names.marks

    @contextmanager
    def inside(self, outer: OuterJoin) -> Iterator[None]:
        """Place expressions inside an outer join, where its rows are not null-extended yet."""
        self._around, before = (*self._around, outer), self._around
        try:
            yield
        finally:
            self._around = before

    def _sharpened(self, expression: Expr, type_: PgType) -> PgType:
        """Return a numeric type with the digits that follow from its columns."""
        if type_.base != "numeric" or type_.precision is not None:
            return type_
        digits = digits_of(self.branch_names.expanded(expression), self.digits)
        if digits is None or digits.after > 30:
            return type_
        return replace(type_, precision=min(38, digits.before + digits.after), scale=digits.after)

    def digits(self, ref: Ref) -> Digits | None:
        """Return the digits that the type of a column declares."""
        column = self.scans[ref.alias].table.column(ref.column) if ref.alias in self.scans else None
        return digits_of_type(column.type) if column else None

    def has_unknown_digits(self, expression: Expr) -> bool:
        """Return True if an expression is a numeric over one table whose number of digits is not
        known.
        """
        type_ = self.types.get(expression)
        return (
            self.is_over_one_table(expression)
            and type_ is not None
            and type_.base == "numeric"
            and type_.precision is None
        )

    def _unbounded(self, expression: Expr) -> bool:
        known = partial(is_unbounded_column, self.scans)
        return self.has_unknown_digits(expression) and is_unbounded(
            self.branch_names.expanded(expression), known
        )

    def type_of(self, node: exp.Expression) -> PgType | Unsupported:
        """Ask the server for the type of an expression over several tables."""
        expression = self.branch_names.expanded(Expr.of(node))
        marks = {ref: Expr("(true)") for ref in self.branch_names.marks}
        types = self._types([expression.substitute(marks)])
        return types if isinstance(types, Unsupported) else types[0]

    def _types(self, expressions: Sequence[Expr]) -> tuple[PgType, ...] | Unsupported:
        return self.server.types(expressions, list(self.scans.values()))

    def inputs(
        self,
        filters: Sequence[tuple[str, Expr]],
        temporal_filters: Mapping[str, tuple[TemporalFilter, ...]],
    ) -> tuple[Input, ...]:
        """Return the inputs with the leaves collected so far, and with their filters by alias."""
        return tuple(
            Input(
                self.names[alias], scan, tuple(self.leaves[alias].values()),
                tuple(f for a, f in filters if a == alias), temporal_filters.get(alias, ()),
            )
            for alias, scan in self.scans.items()
        )  # fmt: skip

    # -- one table -------------------------------------------------------------------------

    def leaf(self, expression: Expr, use: Use) -> Placement | Unsupported:
        """Place an expression over one table as a leaf column; a constant belongs to a table that
        always has a row.

        Inside an outer or mark join that table may be out of scope, so a constant is written as it
        is.
        """
        if is_record(expression.tree):
            return refuse_row(expression)
        scan = self._home(expression)
        type_ = self.types[expression]
        wire = wire_for(type_, use)
        if wire is None:
            return refuse_number(expression, type_)
        if use in ("number", "tried") and not self.lenient and self._unbounded(expression):
            return refuse_across_tables(expression, "It may have more digits than Spark's numbers.")
        if scan is None:
            return self._constant(expression, wire, type_)
        # A key that needs no canonical form travels as it is, and shares the carried column.
        if (
            use in ("key", "printed")
            and wire == wire_of(type_)
            and (use == "printed" or wire.canonical == "{x}")
        ):
            use = "carry"
        leaf = self._own(scan, self.branch_names.expanded(expression), type_, use, wire)
        ref = Expr.ref(self.names[scan.alias], leaf.name)
        value = self._null_extended(expression, leaf, scan, ref)
        return value if isinstance(value, Unsupported) else Placement(value, leaf.wire, type_)

    def _constant(self, expression: Expr, wire: Wire, type_: PgType) -> Placement | Unsupported:
        values = self._values([wire.encode_sql(expression.sql)])
        return (
            values
            if isinstance(values, Unsupported)
            else Placement(literal(values[0], wire), wire, type_)
        )

    def _leaf_above_joins(self, expression: Expr, use: Use) -> Placement | Unsupported:
        """Place an expression over one table as a leaf column that raises only for rows of the
        join.

        Its value is NULL for a row for which it would raise. The error is a leaf of its own, and
        Spark raises it.
        """
        error = self._error(expression)
        if error is None:
            return self.leaf(expression, use)
        if isinstance(error, Unsupported):
            return error
        value = Expr.parse(f"CASE WHEN ({error.sql}) IS NULL THEN {expression.sql} END")
        self.types |= {value: self.types[expression], error: TEXT}
        leaves = collect([self.leaf(value, use), self.leaf(error, "carry")])
        if isinstance(leaves, Unsupported):
            return leaves
        placed, raised = leaves[0], leaves[1].expr.sql
        checked = (
            f"CASE WHEN {raised} IS NULL THEN {placed.expr.sql} ELSE RAISE_ERROR({raised}) END"
        )
        return Placement(Expr.parse(checked), placed.wire, placed.type)

    def _error(self, expression: Expr) -> Expr | Unsupported | None:
        """Return the error that an expression raises for rows that a join discards; None if it
        raises none.
        """
        if len(self.scans) == 1:
            return None
        if expression not in self._errors:
            expanded = self.branch_names.expanded(expression)
            self._errors[expression] = row_error(
                expanded, lambda parts: accepted(self._types(parts)), self._is_binding
            )
        error = self._errors[expression]
        if not isinstance(error, Unforeseen):
            return error
        # PostgreSQL computes a column of a subquery before it null-extends the row.
        if self._eager or expression.as_ref is not None:
            return None
        return refuse_before_join(expression)

    def _is_binding(self, ref: Ref) -> bool:
        """True for a column of outer bindings: types whose equal values can differ visibly are
        stored as text.
        """
        scan = self.scans.get(ref.alias)
        return (
            scan is not None and isinstance(scan.table, BlockRows) and ref.alias.startswith("given")
        )

    @contextmanager
    def above_joins(self) -> Iterator[None]:
        """Place expressions that must not be evaluated for rows that a join discards, though the
        branch is lenient.
        """
        eager, self._eager = self._eager, False
        try:
            yield
        finally:
            self._eager = eager

    def _home(self, expression: Expr) -> Scan | None:
        aliases = self.branch_names.homes(expression)
        if aliases:
            return self.scans[next(iter(aliases))]
        return None if self._around else self.branch_names.first_certain()

    def _own(self, scan: Scan, expression: Expr, type_: PgType, use: Use, wire: Wire) -> Leaf:
        own = self.leaves[scan.alias]
        return own.setdefault((expression, use), Leaf(f"c{len(own)}", expression, type_, use, wire))

    def _null_extended(
        self, expression: Expr, leaf: Leaf, scan: Scan, ref: Expr
    ) -> Expr | Unsupported:
        """Return a leaf with its value in null-extended rows: mostly NULL, but not for COALESCE and
        the like.
        """
        values = self._values_without_match(expression, leaf, scan)
        if isinstance(values, Unsupported):
            return values
        # NULL needs no CASE, unless a join further in has another value.
        while values and values[-1][1] is None:
            values.pop()
        whens = [
            f"WHEN {self._marker(side).sql} IS NULL THEN {literal(v, leaf.wire).sql}"
            for side, v in values
        ]
        return Expr.parse(f"CASE {' '.join(whens)} ELSE {ref.sql} END") if whens else ref

    def _values_without_match(
        self, expression: Expr, leaf: Leaf, scan: Scan
    ) -> list[tuple[Region, Constant]] | Unsupported:
        """Return the value of an expression in the rows that each join null-extends, outermost
        first.
        """
        joins = self.branch_names.null_extending_joins(scan.alias, self._around)
        ref = expression.as_ref
        if ref is not None and all(ref not in outer.definitions() for outer, _ in joins):
            return []
        texts = list[str]()
        for outer, _ in joins:
            over_nulls = self._over_nulls(expression)
            if isinstance(over_nulls, Unsupported):
                return over_nulls
            texts.append(replace(leaf, expr=over_nulls).sql)
            expression = expression.substitute(outer.definitions())
        values = self._values(texts)
        if isinstance(values, Unsupported):
            return values
        return [(side, value) for (_, side), value in zip(joins, values, strict=True)]

    def _over_nulls(self, expression: Expr) -> Expr | Unsupported:
        """Return an expression over NULLs of the types of its columns."""
        refs = sorted(expression.refs)
        types = self._types([self.branch_names.expanded(Expr(ref.sql)) for ref in refs])
        if isinstance(types, Unsupported):
            return types
        return expression.substitute(
            {
                ref: Expr(f"CAST(NULL AS {type_.name})")
                for ref, type_ in zip(refs, types, strict=True)
            }
        )

    def _values(self, expressions: Sequence[str]) -> tuple[Constant, ...] | Unsupported:
        return self.server.values(expressions) if expressions else ()

    def null_if_extended(self, expression: Expr) -> bool:
        """True if an expression is NULL in all rows in which its table is null-extended."""
        scan = self._home(expression)
        if scan is None or not self.branch_names.null_extending_joins(scan.alias, self._around):
            return True
        type_ = self.types[expression]
        leaf = Leaf("c", expression, type_, "carry", wire_of(type_))
        values = self._values_without_match(expression, leaf, scan)
        return not isinstance(values, Unsupported) and all(value is None for _, value in values)

    def never_null_extended(self, expression: Expr) -> bool:
        """True if no join null-extends the table of an expression here."""
        scan = self._home(expression)
        return scan is not None and not self.branch_names.null_extending_joins(
            scan.alias, self._around
        )

    def _marker(self, region: Region) -> Expr:
        """Return a leaf that is true in each row of a region, and NULL if the region is
        null-extended.
        """
        certain = next(region.certain(), None)
        if certain is not None:
            leaf = self._own(certain, Expr("true"), BOOL, "carry", wire_of(BOOL))
            return Expr.ref(self.names[certain.alias], leaf.name)
        full = next(member for member in region.items if isinstance(member, OuterJoin))
        return Expr.parse(
            f"COALESCE({self._marker(full.left).sql}, {self._marker(full.right).sql})"
        )

    # -- any expression --------------------------------------------------------------------

    def place(self, expression: Expr, use: Use) -> Placement | Unsupported:
        """Place an expression of any kind; return the refusal if Spark cannot compute it exactly."""
        node = unwrapped(expression.node)
        expression = Expr.of(node)
        if self._is_mark(expression):
            return Placement(expression, wire_of(BOOL), BOOL)
        if self.is_over_one_table(expression):
            return self._leaf_above_joins(expression, use)
        if (ref := expression.as_ref) is not None:
            return self._place_null_extended(ref, use)
        if is_record(node):
            return refuse_row(expression)
        node = self._spelled(node)
        rule = SPARK_EXACT.get(type(node))
        if rule is None or is_quantified(node):
            return refuse_across_tables(expression)
        return rule(self, node, use)

    def _spelled(self, node: exp.Expression) -> exp.Expression:
        """Expand a comparison of rows or with a list; not with a list of arrays, which compares
        with their elements.
        """
        values = listed_values(node)
        type_ = self.type_of(values[0]) if values else None
        return (
            node
            if isinstance(type_, PgType) and type_.kind == "array"
            else expand_row_comparison(node)
        )

    def _place_null_extended(self, ref: Ref, use: Use) -> Placement | Unsupported:
        """Place a null-extended column over several tables: NULL in rows where its side has no
        match.
        """
        with self.within(ref) as definition:
            placed = self.place(definition, use)
        if isinstance(placed, Unsupported):
            return placed
        whole = f"CASE WHEN {self.marker(ref)} IS NOT NULL THEN {placed.expr.sql} END"
        return Placement(Expr.parse(whole), placed.wire, placed.type)

    @contextmanager
    def within(self, ref: Ref) -> Iterator[Expr]:
        """Yield the definition of a null-extended column, to be placed inside its outer join."""
        with self.inside(self.branch_names.outer_join(ref)):
            yield self.branch_names.definition(ref)

    def marker(self, ref: Ref) -> str:
        """Return what is NULL in Spark where the side of a null-extended column is."""
        return self._marker(self.branch_names.side(ref)).sql

    def over_columns(self, expression: Expr) -> OverColumns | Unsupported:
        """Return an expression for PostgreSQL to evaluate while applying, and the placements of its
        columns.

        Only columns are read below a join: an expression that may raise (1 / x) must raise only for
        rows of the result.
        """
        expression = Expr.of(unwrapped(expression.tree))
        if len(self.scans) == 1 and expression.refs:
            return self._with_leaves(
                Expr(Ref("whole", expression.sql).sql), {Ref("whole", expression.sql): expression}
            )
        expression, told = self._told(expression)
        placed = self._with_leaves(expression, told)
        if isinstance(placed, Unsupported):
            return placed
        expression, markers = self._defined(expression)
        known, refs = placed[1] | markers, sorted(expression.refs)
        columns = collect(known.get(ref) or self._carried(ref) for ref in refs)
        return (
            columns
            if isinstance(columns, Unsupported)
            else (expression, dict(zip(refs, columns, strict=True)))
        )

    def _defined(self, expression: Expr) -> tuple[Expr, dict[Ref, Placement]]:
        """Replace null-extended numbers across tables by their definitions: PostgreSQL has numbers
        of any size.
        """
        definitions, markers = dict[Ref, Expr](), dict[Ref, Placement]()
        for ref in filter(self.is_computed_number, sorted(expression.refs)):
            side = Expr(self.marker(ref))
            marker = Ref("there", side.sql)
            markers[marker] = Placement(side, wire_of(BOOL), BOOL)
            definition = self.branch_names.definition(ref)
            definitions[ref] = Expr.parse(
                f"CASE WHEN {marker.sql} IS NOT NULL THEN {definition.sql} END"
            )
        if not definitions:
            return expression, {}
        expression, more = self._defined(expression.substitute(definitions))
        return expression, markers | more

    def is_computed_number(self, ref: Ref) -> bool:
        """True for a null-extended column that is arithmetic of numerics across tables."""
        if not self.branch_names.is_null_extended_column(ref) or self.is_over_one_table(
            Expr(ref.sql)
        ):
            return False
        definition = unwrapped(self.branch_names.definition(ref).tree)
        if not isinstance(definition, exp.Add | exp.Sub | exp.Mul | exp.Neg):
            return False
        type_ = self.type_of(definition)
        return isinstance(type_, PgType) and type_.base == "numeric"

    def _with_leaves(
        self, expression: Expr, parts: Mapping[Ref, Expr]
    ) -> OverColumns | Unsupported:
        """Return an expression over columns with the leaves that these are."""
        leaves = collect(self.leaf(part, "carry") for part in parts.values())
        return (
            leaves
            if isinstance(leaves, Unsupported)
            else (expression, dict(zip(parts, leaves, strict=True)))
        )

    def _told(self, expression: Expr) -> tuple[Expr, dict[Ref, Expr]]:
        """Read expressions over the clock alone as leaves: current_date changes less often than
        now().
        """
        parts = [part for part in self.parts(expression) if self._is_told(part)]
        wholes = {part: Ref("whole", part.sql) for part in parts}

        def replaced(node: exp.Expression) -> exp.Expression:
            found = wholes.get(Expr.of(node))
            return Expr(found.sql).node if found else node

        told = {whole: part for part, whole in wholes.items()}
        return (Expr.of(transform(expression.tree, replaced)), told) if told else (expression, {})

    def _is_told(self, part: Expr) -> bool:
        scan = self._home(part)
        return (
            bool(part.refs)
            and part.as_ref is None
            and scan is not None
            and isinstance(scan.table, Clock)
        )

    def _carried(self, ref: Ref) -> Placement | Unsupported:
        expression = Expr(ref.sql)
        if expression not in self.types and (refusal := self._add_types(ref, expression)):
            return refusal
        return self.place(expression, "carry")

    def _add_types(self, ref: Ref, expression: Expr) -> Unsupported | None:
        """Add the types that placing a column needs; return the refusal of one."""
        if ref in self.branch_names.marks:
            return None
        column = self.scans[ref.alias].table.column(ref.column) if ref.alias in self.scans else None
        null_extended = self.branch_names.is_null_extended_column(ref)
        if column is not None and not null_extended:
            self.types[expression] = column.type
            return None
        parts = list(self.parts(expression)) if null_extended else [expression]
        types = collect(self.type_of(part.tree) for part in parts)
        if isinstance(types, Unsupported):
            return types
        self.types |= dict(zip(parts, types, strict=True))
        return None
