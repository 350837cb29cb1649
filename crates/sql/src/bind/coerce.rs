//! Converts expressions to the types that their surroundings need.
//!
//! Invariants
//! 1. Constants are cast during binding. So a bad literal is an error of the statement, with its position.
//! 2. A cast that changes neither bytes nor meaning is left out of the expression.
//!
//! This module does not know which operator or function needs the type.

use varve_engine::{ColumnType, Value};

use super::Binder;
use super::bound::Bound;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Expr, reg};
use crate::path::Path;
use crate::text;
use crate::time::{IntervalFields, IntervalStyle, Reading};
use crate::ty::{CastLevel, Reg, Ty, Typed, cast_level};

impl Binder<'_> {
    /// Casts implicitly to `ty` without modifier. `what` is the operator or clause in the error.
    pub fn implicit(&mut self, b: Bound, ty: Ty, what: &str) -> Result<Bound> {
        if b.t.ty == ty {
            return Ok(b);
        }
        if cast_level(b.t.ty, ty) != Some(CastLevel::Implicit) {
            let message = format!("{what} must be type {}, not type {}", ty.name(), b.t.ty.name());
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).at(b.at));
        }
        self.cast(b, Typed::plain(ty), false)
    }

    /// Casts for storage into a column.
    pub fn assign(&mut self, b: Bound, column: &str, to: ColumnType) -> Result<Expr> {
        let to = Typed::of_column(to);
        if cast_level(b.t.ty, to.ty).is_none_or(|l| l > CastLevel::Assignment) {
            let message = format!(
                "column \"{column}\" is of type {} but expression is of type {}",
                to.ty.name(),
                b.t.ty.name()
            );
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("You will need to rewrite or cast the expression.")
                .at(b.at));
        }
        Ok(self.cast(b, to, false)?.expr)
    }

    /// Binds a cast in the client's text.
    pub fn explicit(&mut self, mut b: Bound, to: Typed) -> Result<Bound> {
        if cast_level(b.t.ty, to.ty).is_none() {
            let message = format!("cannot cast type {} to {}", b.t.ty.name(), to.ty.name());
            return Err(SqlError::new(SqlState::CANNOT_COERCE, message).at(b.at));
        }
        if let (Ty::Reg(kind), Expr::Const(Value::Text(name))) = (to.ty, &mut b.expr) {
            let path = self.path.unwrap_or(Path::public());
            reg::find(kind, name, self.catalog, path).map_err(|e| e.at(b.at))?;
            // The name is looked up again at run time, with the search path of the session that reads the
            // text.
            if kind == Reg::Class && self.path.is_none() && Path::public().is_in_public(self.catalog, name) {
                name.insert_str(0, "public.");
            }
        }
        self.cast(b, to, true)
    }

    /// Casts without a check whether the cast is allowed.
    pub fn cast(&mut self, b: Bound, to: Typed, explicit: bool) -> Result<Bound> {
        let at = b.at;
        let b = if b.t.ty == Ty::Unknown { self.settle(b, to)? } else { b };
        self.reads_world |= matches!(b.t.ty, Ty::Reg(_)) || matches!(to.ty, Ty::Reg(_));
        if !needs_cast(b.t, to) {
            let typmod = if to.typmod >= 0 || b.t.ty != to.ty { to.typmod } else { b.t.typmod };
            return Ok(Bound { t: Typed { ty: to.ty, typmod }, ..b });
        }
        let constant = matches!(b.expr, Expr::Const(_)) && !depends_on_session(b.t.ty, to.ty);
        let expr = Expr::Cast(Box::new(b.expr), b.t.ty, to, explicit);
        if !constant {
            return Ok(Bound { expr, t: to, at });
        }
        match fold(&expr) {
            Ok(expr) => Ok(Bound { expr, t: to, at }),
            Err(_) if self.choices > 0 => Ok(Bound { expr, t: to, at }),
            Err(e) => Err(e.at(at)),
        }
    }

    /// Gives an untyped literal or parameter a type.
    fn settle(&mut self, b: Bound, to: Typed) -> Result<Bound> {
        let t = Typed::plain(to.ty);
        match b.expr {
            Expr::Param(n) => {
                self.params[n] = param_type(to.ty);
                self.has_interval_fields |= to.fields().is_some();
                Ok(Bound { expr: Expr::Param(n), t: Typed::plain(self.params[n]), at: b.at })
            }
            Expr::Const(Value::Null) => Ok(Bound { expr: Expr::NULL, t, at: b.at }),
            // Nearly all intervals have the same value with every IntervalStyle.
            Expr::Const(Value::Text(ref literal)) if to.ty == Ty::Interval => {
                let fields = to.fields().unwrap_or(IntervalFields::ALL);
                let read = |style| crate::time::parse_interval_of(literal, style, fields);
                let usual = read(IntervalStyle::Postgres).map_err(|e| e.at(b.at))?;
                if !self.is_kept && read(IntervalStyle::SqlStandard).ok() != Some(usual) {
                    return Ok(Bound { t: Typed::plain(Ty::Text), ..b });
                }
                Ok(Bound { expr: Expr::Const(Value::Interval(usual)), t, at: b.at })
            }
            Expr::Const(Value::Text(ref literal))
                if self.is_kept && matches!(to.ty, Ty::Date | Ty::Timestamp) =>
            {
                let value = text::parse_as(literal, to.ty.oid(), &Reading::plain());
                let value = value.map_err(|e| e.at(b.at))?;
                // `now`, and texts that have the same value in all orders, are read at run time.
                if !text::has_several_orders(literal) {
                    return Ok(Bound { t: Typed::plain(Ty::Text), ..b });
                }
                Ok(Bound { expr: Expr::Const(value), t, at: b.at })
            }
            Expr::Const(Value::Text(ref literal))
                if !to.ty.is_text() && !depends_on_session(Ty::Unknown, to.ty) =>
            {
                let value =
                    text::parse_as(literal, to.ty.oid(), &Reading::plain()).map_err(|e| e.at(b.at))?;
                Ok(Bound { expr: Expr::Const(value), t, at: b.at })
            }
            _ => Ok(Bound { t: Typed::plain(Ty::Text), ..b }),
        }
    }

    /// Gives an expression of unknown type the type text, for results.
    pub fn known(&mut self, b: Bound) -> Result<Bound> {
        if b.t.ty == Ty::Unknown { self.cast(b, Typed::plain(Ty::Text), false) } else { Ok(b) }
    }

    /// Binds a condition of WHERE, HAVING, CASE or similar clauses.
    pub fn condition(&mut self, b: Bound, clause: &str) -> Result<Expr> {
        let what = format!("argument of {clause}");
        Ok(self.implicit(b, Ty::Bool, &what)?.expr)
    }

    /// Casts several expressions to one type, for CASE, COALESCE, VALUES.
    pub fn unify(&mut self, items: Vec<Bound>, clause: &str) -> Result<(Vec<Expr>, Typed)> {
        let mut ty = Ty::Unknown;
        for item in &items {
            ty = crate::ty::common(ty, item.t.ty).ok_or_else(|| {
                let message =
                    format!("{clause} types {} and {} cannot be matched", ty.name(), item.t.ty.name());
                SqlError::new(SqlState::DATATYPE_MISMATCH, message).at(item.at)
            })?;
        }
        let ty = if ty == Ty::Unknown { Ty::Text } else { ty };
        let same = items.iter().all(|i| i.t == items[0].t);
        let t = if same && items[0].t.ty == ty { items[0].t } else { Typed::plain(ty) };
        let cast = |i: Bound| {
            let i = if t.may_have_blanks() { as_bpchar(i) } else { i };
            Ok(self.cast(i, Typed::plain(ty), false)?.expr)
        };
        Ok((items.into_iter().map(cast).collect::<Result<_>>()?, t))
    }
}

/// Returns any string as a value of `bpchar`. A text keeps the blanks at its end.
pub(super) fn as_bpchar(b: Bound) -> Bound {
    match (b.t.ty, &b.expr) {
        (Ty::Text | Ty::Varchar, _) | (Ty::Unknown, Expr::Const(Value::Text(_))) => {
            Bound { t: Typed::plain(Ty::Char), ..b }
        }
        _ => with_blanks(b),
    }
}

/// Returns a char(n) as a value of `bpchar`, which has no length for its output and keeps the blanks.
pub(super) fn with_blanks(b: Bound) -> Bound {
    match (b.t.ty, b.t.length()) {
        (Ty::Char, Some(n)) => {
            Bound { expr: Expr::Pad(Box::new(b.expr), n), t: Typed::plain(Ty::Char), at: b.at }
        }
        _ => b,
    }
}

/// Returns a char(n) as text, including the blanks that its output shows.
pub(super) fn shown_as_text(b: Bound) -> Bound {
    match b.t.ty {
        Ty::Char => Bound { t: Typed::plain(Ty::Text), ..with_blanks(b) },
        _ => b,
    }
}

/// Returns the type of a parameter in place of a value of type `ty`.
fn param_type(ty: Ty) -> Ty {
    match ty {
        Ty::Reg(_) | Ty::Void | Ty::Unknown => Ty::Text,
        t => t,
    }
}

fn needs_cast(from: Typed, to: Typed) -> bool {
    if from == to {
        return false;
    }
    match (from.ty, to.ty) {
        (a, b) if a == b => to.typmod >= 0,
        (Ty::Char, to) if from.length().is_none() && to.is_text() => true,
        (a, Ty::Text) if a.is_text() => false,
        (a, b) if a.is_oid() && b.is_oid() => false,
        (Ty::Int2Vector | Ty::OidVector, Ty::Array(_)) => true,
        (a, Ty::Varchar) if a.is_text() => to.typmod >= 0,
        _ => true,
    }
}

/// Returns whether the cast needs the clock, the time zone, or the output format of dates and intervals.
fn depends_on_session(from: Ty, to: Ty) -> bool {
    let zoned = |t: Ty| t == Ty::TimestampTz;
    let named = |t: Ty| matches!(t, Ty::Reg(_));
    zoned(from)
        || zoned(to)
        || named(from)
        || named(to)
        || from.element().is_some_and(|element| depends_on_session(element, to.element().unwrap_or(to)))
        || to.element().is_some_and(|element| depends_on_session(from, element))
        || ((to.is_moment() || matches!(to, Ty::Time | Ty::Interval))
            && (from.is_text() || from == Ty::Unknown))
        || ((from.is_moment() || from == Ty::Interval) && (to.is_text() || to == Ty::Unknown))
}

/// Evaluates an expression of constants.
fn fold(expr: &Expr) -> Result<Expr> {
    use crate::eval::{Cx, Env, Input, NoSequences};
    let arena = bumpalo::Bump::new();
    let random = std::cell::Cell::new(1);
    let now_us = std::cell::Cell::new(Some(0));
    let cancel = std::sync::atomic::AtomicBool::new(false);
    let env = Env {
        now_us: &now_us,
        forms: &crate::time::PLAIN,
        encoding: crate::encoding::Encoding::UTF8,
        user: "",
        session_user: "",
        database: "",
        process_id: 0,
        random: &random,
        cancel: &cancel,
        world: None,
        sequences: &NoSequences,
        lists: Default::default(),
    };
    let cx = Cx { params: &[], arena: &arena, env: &env };
    let value = expr.eval(&Input::None, &cx)?.to_value();
    Ok(Expr::Const(value))
}
