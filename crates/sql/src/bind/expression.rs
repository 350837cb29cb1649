//! Binds expressions of the syntax tree.
//!
//! Invariants
//! 1. Chains of AND and OR of any length are bound without recursion along the chain.
//! 2. In a grouped query a subexpression that equals a group key becomes a reference to that key.
//!
//! This module does not know statements.

use varve_engine::{TableId, Value};

use super::Binder;
use super::bound::Bound;
use super::call::whole_row;
use super::scope::{ColumnMatch, Scope};
use crate::ast::{self, BinaryOperator, Expr as Ast, UnaryOperator, Value as Literal};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::plan::SubqueryKind;
use crate::text;
use crate::ty::{self, Ty, Typed};

impl Binder<'_> {
    /// Binds one expression.
    pub fn expression(&mut self, e: &Ast, scope: &mut Scope) -> Result<Bound> {
        if let Some(slot) = scope.grouping.as_ref().and_then(|g| g.key_of(e)) {
            let t = scope.grouping.as_ref().map_or(Typed::plain(Ty::Text), |g| g.keys[slot].1.t);
            self.note_known(e, scope, true);
            return Ok(Bound { expr: Expr::Slot(slot), t, at: self.at(e) });
        }
        self.deeper(|b| b.expression_inner(e, scope))
    }

    fn expression_inner(&mut self, e: &Ast, scope: &mut Scope) -> Result<Bound> {
        match e {
            Ast::Identifier(ident) => self.column(None, ident, scope),
            Ast::CompoundIdentifier(parts) => self.qualified(parts, scope),
            Ast::Value(constant) => self.literal(&constant.value, constant.at.position()),
            Ast::Parameter(number, at) => self.param(*number, at.position()),
            Ast::Nested(inner) => self.expression(inner, scope),
            Ast::BinaryOp { left, op, right } => match op {
                BinaryOperator::And | BinaryOperator::Or => self.chain(e, op, scope),
                _ => self.binary_operation(left, op, right, scope),
            },
            Ast::UnaryOp { op: UnaryOperator::Minus, expr } if is_power(expr) => {
                let rewritten = minus_first(expr);
                self.expression(&rewritten, scope)
            }
            Ast::UnaryOp { op: UnaryOperator::Minus, expr } if let Some(digits) = negative_number(expr) => {
                let at = self.at(e);
                let (value, ty) = number(&digits).map_err(|e| e.at(at))?;
                Ok(Bound { expr: Expr::Const(value), t: Typed::plain(ty), at })
            }
            Ast::UnaryOp { op, expr } => {
                let at = self.at(e);
                let b = self.expression(expr, scope)?;
                Ok(Bound { at, ..self.unary(*op, b)? })
            }
            Ast::Cast { expr, data_type } => self.written_cast(expr, data_type, scope),
            Ast::Function(f) => self.function(f, scope),
            Ast::Between { expr, negated, symmetric, low, high } => {
                self.between(expr, *negated, low, high, *symmetric, scope)
            }
            Ast::InList { expr, list, negated } => self.in_list(expr, list, *negated, scope),
            Ast::IsNull(inner) => self.is_null(inner, false, scope),
            Ast::IsNotNull(inner) => self.is_null(inner, true, scope),
            Ast::Case(case) => self.case(case, scope),
            Ast::Like { .. } => self.written_like(e, scope),
            other => self.rare_expression(other, scope),
        }
    }

    fn rare_expression(&mut self, e: &Ast, scope: &mut Scope) -> Result<Bound> {
        match e {
            Ast::IsTrue(inner) => self.is_bool(inner, true, false, scope),
            Ast::IsNotTrue(inner) => self.is_bool(inner, true, true, scope),
            Ast::IsFalse(inner) => self.is_bool(inner, false, false, scope),
            Ast::IsNotFalse(inner) => self.is_bool(inner, false, true, scope),
            Ast::IsUnknown(inner) => self.is_unknown(inner, false, scope),
            Ast::IsNotUnknown(inner) => self.is_unknown(inner, true, scope),
            Ast::IsDistinctFrom(l, r) => self.distinct(l, r, false, scope),
            Ast::IsNotDistinctFrom(l, r) => self.distinct(l, r, true, scope),
            Ast::Substring { .. } | Ast::Trim { .. } | Ast::Overlay { .. } | Ast::Position { .. } => {
                self.string_function(e, scope)
            }
            Ast::ValueFunction(f) => self.value_function(f),
            Ast::Extract { field, expr } => {
                let name = Value::Text(field.to_lowercase());
                let value = self.expression(expr, scope)?;
                let field = Bound { expr: Expr::Const(name), t: Typed::plain(Ty::Text), at: self.at(e) };
                let at = self.at(e);
                self.call_function("extract", vec![field, value], at)
            }
            Ast::AtTimeZone { timestamp, time_zone } => {
                self.call_with("timezone", &[time_zone.as_ref(), timestamp.as_ref()], e, scope)
            }
            Ast::Array(items) => self.array(items, scope),
            Ast::Indirection { root, links } => self.subscript(root, links, scope),
            Ast::Collate { expr, collation } => self.collate(expr, collation, scope),
            Ast::Subquery(query) => self.scalar_subquery(query, scope),
            Ast::ArraySubquery(query, _) => self.array_subquery(query, scope),
            Ast::Exists { subquery, negated } => self.exists(subquery, *negated, scope),
            Ast::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated, scope),
            Ast::AnyOp { left, compare_op, right, .. } => {
                self.any_or_all(left, compare_op, right, false, scope)
            }
            Ast::AllOp { left, compare_op, right } => self.any_or_all(left, compare_op, right, true, scope),
            Ast::SimilarTo { expr, negated, pattern, escape } => {
                let at = self.at(e);
                let subject = self.expression(expr, scope)?;
                let written = std::iter::once(pattern).chain(escape);
                let arguments = written.map(|e| self.expression(e, scope)).collect::<Result<Vec<_>>>()?;
                let pattern = self.call_function("similar_to_escape", arguments, at)?;
                self.binary(
                    if *negated { &BinaryOperator::RegexNotMatch } else { &BinaryOperator::RegexMatch },
                    subject,
                    pattern,
                    at,
                )
            }
            Ast::Tuple(_) | Ast::Row(..) => Err(SqlError::unsupported("a row value here").at(self.at(e))),
            Ast::Default(at) => {
                let message = "DEFAULT is not allowed in this context";
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at.position()))
            }
            _ => Err(SqlError::internal("an expression that nobody binds")),
        }
    }

    /// Binds functions of strings whose arguments are separated by words.
    fn string_function(&mut self, e: &Ast, scope: &mut Scope) -> Result<Bound> {
        match e {
            Ast::Substring { expr, from, r#for, shorthand } => {
                let name = if *shorthand { "substr" } else { "substring" };
                let mut arguments = vec![expr.as_ref()];
                arguments.extend(from.as_deref().into_iter().chain(r#for.as_deref()));
                self.call_with(name, &arguments, e, scope)
            }
            Ast::Trim { expr, side, what } => {
                let mut arguments = vec![expr.as_ref()];
                arguments.extend(what.as_deref());
                self.call_with(side.function(), &arguments, e, scope)
            }
            Ast::Overlay { expr, what, from, r#for } => {
                let mut arguments = vec![expr.as_ref(), what.as_ref(), from.as_ref()];
                arguments.extend(r#for.as_deref());
                self.call_with("overlay", &arguments, e, scope)
            }
            Ast::Position { expr, r#in } => {
                self.call_with("strpos", &[r#in.as_ref(), expr.as_ref()], e, scope)
            }
            _ => Err(SqlError::internal("a function of strings that is none")),
        }
    }

    /// Binds `x op ANY (...)` and `x op ALL (...)`, with a subquery or an array.
    fn any_or_all(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        all: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let kind = if all { SubqueryKind::All } else { SubqueryKind::Any };
        match (super::operator::comparison(op), right.unnested()) {
            (Some(op), Ast::Subquery(query)) => self.compared_with_rows(left, op, query, kind, scope),
            _ => self.quantified(left, op, right, all, scope),
        }
    }

    fn call_with(&mut self, name: &str, arguments: &[&Ast], whole: &Ast, scope: &mut Scope) -> Result<Bound> {
        let at = self.at(whole);
        let bound = arguments.iter().map(|a| self.expression(a, scope)).collect::<Result<Vec<_>>>()?;
        self.call_function(name, bound, at)
    }

    pub(super) fn binary_operation(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if let Some(bound) = self.row_operation(left, op, right, scope)? {
            return Ok(bound);
        }
        // Comparisons do not associate. Parentheses would be a separate node.
        if op.is_comparison() && matches!(left, Ast::BinaryOp { op: inner, .. } if inner.is_comparison()) {
            let message = format!("syntax error at or near \"{op}\"");
            let at = self.operator_position(left, op, right);
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at));
        }
        let l = self.expression(left, scope)?;
        let r = self.expression(right, scope)?;
        let at = self.operator_position(left, op, right).or(l.at);
        self.binary(op, l, r, at)
    }

    /// Returns the position of an operator, which is between its operands.
    pub(super) fn operator_position(&self, left: &Ast, op: &BinaryOperator, right: &Ast) -> Option<u32> {
        let (from, to) = (self.at(left)?, self.at(right)?);
        if !self.ascii {
            return self.at(left);
        }
        let between = self.source.get(from as usize - 1..to as usize - 1)?;
        let symbol = op.symbol();
        let written = between.rfind(symbol).or_else(|| between.rfind("!=").filter(|_| symbol == "<>"));
        Some(from + written.unwrap_or(0) as u32)
    }

    /// Binds AND or OR. Descends the left side of the tree in a loop.
    fn chain(&mut self, e: &Ast, op: &BinaryOperator, scope: &mut Scope) -> Result<Bound> {
        let mut operands = Vec::new();
        let mut at = e;
        loop {
            match at {
                Ast::BinaryOp { left, op: o, right } if o == op => {
                    operands.push(right.as_ref());
                    at = left;
                }
                first => {
                    operands.push(first);
                    break;
                }
            }
        }
        operands.reverse();
        // The chain begins with its first operand. A search of the whole tree for the position would take
        // long.
        let at = operands.first().and_then(|o| self.at(*o));
        let clause = op.symbol();
        let bind = |o: &Ast| {
            let b = self.expression(o, scope)?;
            self.condition(b, clause)
        };
        let items = operands.into_iter().map(bind).collect::<Result<Box<[Expr]>>>()?;
        let expr = if *op == BinaryOperator::And { Expr::And(items) } else { Expr::Or(items) };
        Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
    }

    fn column(&mut self, qualifier: Option<&str>, ident: &ast::Ident, scope: &mut Scope) -> Result<Bound> {
        let name = fold(ident);
        let here = qualifier.is_some_and(|q| scope.relation(q).is_some());
        if !here
            && scope.find(qualifier, &name) == ColumnMatch::Nothing
            && let Some(outer) = self.outer_column(qualifier, &name, ident, scope)?
        {
            return Ok(outer);
        }
        if qualifier.is_none() {
            self.note_column(ident, scope.find(None, &name), scope, &[]);
        }
        self.own_column(qualifier, &name, ident, scope)
    }

    /// Returns a column of the relations in `scope`.
    pub(super) fn own_column(
        &mut self,
        qualifier: Option<&str>,
        name: &str,
        ident: &ast::Ident,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let at = ident.at.position();
        let (expr, t) = match scope.find(qualifier, name) {
            ColumnMatch::Column(ordinal, t) => (Expr::Column(ordinal), t),
            ColumnMatch::Merged(n) => (scope.merged[n].expr.clone(), scope.merged[n].t),
            ColumnMatch::Nothing => return self.no_column(qualifier, name, at, scope),
            ColumnMatch::Several => {
                let message = format!("column reference \"{name}\" is ambiguous");
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).at(at));
            }
        };
        self.column_value(expr, t, name, at, scope)
    }

    /// Returns the value of a column in a query. In a grouped query it is the value of a group.
    pub(super) fn column_value(
        &mut self,
        expr: Expr,
        t: Typed,
        name: &str,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let Some(grouping) = &mut scope.grouping else {
            return Ok(Bound { expr, t, at });
        };
        let slot = match &expr {
            Expr::Column(ordinal) => grouping.key_of_column(*ordinal, t),
            _ => None,
        };
        match slot {
            Some(slot) => Ok(Bound { expr: Expr::Slot(slot), t, at }),
            None => {
                let owner = match &expr {
                    Expr::Column(ordinal) => scope.owner(*ordinal).map(|r| format!("{}.", r.alias)),
                    _ => None,
                };
                let message = format!(
                    "column \"{}{name}\" must appear in the GROUP BY clause or be used in an aggregate function",
                    owner.unwrap_or_default()
                );
                Err(SqlError::new(SqlState::GROUPING_ERROR, message).at(at))
            }
        }
    }

    fn no_column(
        &mut self,
        qualifier: Option<&str>,
        name: &str,
        at: Option<u32>,
        scope: &Scope,
    ) -> Result<Bound> {
        if name == "tableoid"
            && let Some(oid) = system_oid(qualifier, scope)
        {
            let expr = Expr::Const(Value::Int8(i64::from(oid)));
            return Ok(Bound { expr, t: Typed::plain(Ty::Oid), at });
        }
        if matches!(name, "ctid" | "xmin" | "xmax" | "cmin" | "cmax") && self.is_of_table(qualifier, scope) {
            return Err(SqlError::unsupported(format!("the system column {name}")).at(at));
        }
        // In PostgreSQL, the name of a relation stands for its whole row.
        if qualifier.is_none() && scope.relation(name).is_some() {
            return Err(whole_row().at(at));
        }
        let shown = match qualifier {
            Some(q) => format!("column {q}.{name} does not exist"),
            None => format!("column \"{name}\" does not exist"),
        };
        Err(SqlError::new(SqlState::UNDEFINED_COLUMN, shown).at(at))
    }

    /// Returns whether the qualifier, or the only relation, is a table.
    fn is_of_table(&self, qualifier: Option<&str>, scope: &Scope) -> bool {
        let relation = match qualifier {
            Some(alias) => scope.relation(alias),
            None => scope.relations.first(),
        };
        let shown = relation.and_then(|relation| relation.origins.iter().flatten().next());
        shown.is_some_and(|origin| self.catalog.table_ref(TableId(origin.relation)).is_some())
            || system_oid(qualifier, scope).is_some()
    }

    fn qualified(&mut self, parts: &[ast::Ident], scope: &mut Scope) -> Result<Bound> {
        let (Some(last), Some(table)) = (parts.last(), parts.len().checked_sub(2).map(|i| &parts[i])) else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "improper qualified name"));
        };
        let qualifier = fold(table);
        if scope.relation(&qualifier).is_none() && !self.is_outer_relation(&qualifier) {
            let hidden = scope.relations.iter().any(|r| r.hidden.as_ref() == Some(&qualifier))
                || self.is_beside(&qualifier);
            let what = if hidden { "invalid reference to" } else { "missing" };
            let message = format!("{what} FROM-clause entry for table \"{qualifier}\"");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).at(table.at.position()));
        }
        let at = parts[0].at.position();
        let bound = self.column(Some(&qualifier), last, scope).map_err(|e| SqlError { position: at, ..e })?;
        Ok(Bound { at, ..bound })
    }

    fn literal(&mut self, v: &Literal, at: Option<u32>) -> Result<Bound> {
        let (value, ty) = match v {
            Literal::Null => (Value::Null, Ty::Unknown),
            Literal::Boolean(b) => (Value::Bool(*b), Ty::Bool),
            Literal::Text(s) => (Value::Text(s.clone()), Ty::Unknown),
            Literal::Number(digits) => number(digits).map_err(|e| e.at(at))?,
        };
        if matches!(&value, Value::Text(t) if t.contains('\0')) {
            return Err(SqlError::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\": 0x00",
            ));
        }
        Ok(Bound { expr: Expr::Const(value), t: Typed::plain(ty), at })
    }

    fn written_cast(&mut self, e: &Ast, data_type: &ast::TypeName, scope: &mut Scope) -> Result<Bound> {
        let to = ty::of_ast(data_type).map_err(|error| error.at(self.at(e)))?;
        if let Ast::Array(items) = e
            && let Some(bound) = self.typed_array(items, to, scope)?
        {
            return Ok(bound);
        }
        let inner = self.expression(e, scope)?;
        self.explicit(inner, to)
    }

    /// Binds a function that is called by a word.
    fn value_function(&mut self, f: &ast::ValueFunction) -> Result<Bound> {
        let at = f.at.position();
        let ty = match f.name {
            "current_timestamp" => Ty::TimestampTz,
            "localtimestamp" => Ty::Timestamp,
            "current_date" => Ty::Date,
            "localtime" => Ty::Time,
            name => {
                let digits = f.precision.map(|digits| Expr::Const(Value::Int4(digits)));
                let digits = digits.map(|expr| Bound { expr, t: Typed::plain(Ty::Int4), at });
                return self.call_function(name, digits.into_iter().collect(), at);
            }
        };
        if f.precision.is_some() {
            return Err(SqlError::unsupported("a precision of the current time").at(at));
        }
        let now = self.call_function("now", Vec::new(), at)?;
        self.cast(now, Typed::plain(ty), false)
    }
}

/// Returns the OID of the system table to which a qualifier, or the only relation, refers.
fn system_oid(qualifier: Option<&str>, scope: &Scope) -> Option<u32> {
    let relation = match qualifier {
        Some(alias) => scope.relation(alias)?,
        None => scope.relations.first()?,
    };
    let name = relation.hidden.as_deref().unwrap_or(&relation.alias);
    crate::system::table("pg_catalog", name).map(|table| table.oid)
}

/// Reads a number with its sign. The type is the narrowest one that fits: integer, bigint or numeric.
fn number(digits: &str) -> Result<(Value, Ty)> {
    if digits.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        && let Ok(n) = digits.parse::<i64>()
    {
        return Ok(match i32::try_from(n) {
            Ok(small) => (Value::Int4(small), Ty::Int4),
            Err(_) => (Value::Int8(n), Ty::Int8),
        });
    }
    Ok((Value::Numeric(text::parse_numeric(digits)?), Ty::Numeric))
}

/// Returns the operand of a minus, if it is a number, with the minus. The sign then belongs to the literal.
/// So -2147483648 and -9223372036854775808 have a narrower type than without the sign. A cast binds tighter
/// than the minus, so a cast number is not a literal any more.
fn negative_number(operand: &Ast) -> Option<String> {
    let (mut operand, mut is_negative) = (operand, true);
    loop {
        match operand {
            Ast::Nested(inner) => operand = inner,
            Ast::UnaryOp { op: UnaryOperator::Minus, expr } => {
                operand = expr;
                is_negative = !is_negative;
            }
            Ast::Value(value) => match &value.value {
                Literal::Number(digits) if is_negative => return Some(format!("-{digits}")),
                Literal::Number(digits) => return Some(digits.clone()),
                _ => return None,
            },
            _ => return None,
        }
    }
}

fn is_power(e: &Ast) -> bool {
    matches!(e, Ast::BinaryOp { op: BinaryOperator::Power, .. })
}

/// Changes `-(a ^ b)`, as the parser reads `-a ^ b`, to `(-a) ^ b`, as PostgreSQL reads it.
fn minus_first(e: &Ast) -> Ast {
    match e {
        Ast::BinaryOp { left, op: BinaryOperator::Power, right } => {
            let left = Box::new(minus_first(left));
            Ast::BinaryOp { left, op: BinaryOperator::Power, right: right.clone() }
        }
        operand => Ast::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(operand.clone()) },
    }
}
