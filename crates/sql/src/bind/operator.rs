//! Binds operators: which types they take, and which expression they become.
//!
//! Invariants
//! 1. If PostgreSQL has a comparison operator for two types, the binder adds no cast to a column of one of
//!    these types. For example, integers of different widths are compared directly. So an index on the column
//!    can be used.
//!
//! This module does not know functions or evaluation.

use varve_engine::Value;

use super::Binder;
use super::bound::Bound;
use super::coerce::shown_as_text;
use crate::ast::{BinaryOperator, UnaryOperator};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::arith::{ArithOp, Class};
use crate::eval::{CmpOp, Expr, Like};
use crate::ty::{Ty, Typed};

/// Returns the comparison that an operator token stands for.
pub fn comparison(op: &BinaryOperator) -> Option<CmpOp> {
    Some(match op {
        BinaryOperator::Eq => CmpOp::Eq,
        BinaryOperator::NotEq => CmpOp::Ne,
        BinaryOperator::Lt => CmpOp::Lt,
        BinaryOperator::LtEq => CmpOp::Le,
        BinaryOperator::Gt => CmpOp::Gt,
        BinaryOperator::GtEq => CmpOp::Ge,
        _ => return None,
    })
}

fn arithmetic(op: &BinaryOperator) -> Option<ArithOp> {
    Some(match op {
        BinaryOperator::Plus => ArithOp::Add,
        BinaryOperator::Minus => ArithOp::Subtract,
        BinaryOperator::Multiply => ArithOp::Multiply,
        BinaryOperator::Divide => ArithOp::Divide,
        BinaryOperator::Modulo => ArithOp::Remainder,
        BinaryOperator::BitwiseAnd => ArithOp::BitAnd,
        BinaryOperator::BitwiseOr => ArithOp::BitOr,
        BinaryOperator::BitwiseXor => ArithOp::BitXor,
        BinaryOperator::ShiftLeft => ArithOp::ShiftLeft,
        BinaryOperator::ShiftRight => ArithOp::ShiftRight,
        _ => return None,
    })
}

impl Binder<'_> {
    /// Binds the operators `~`, `~*`, `!~` and `!~*`.
    fn regex(
        &mut self,
        left: Bound,
        right: Bound,
        fold_case: bool,
        negated: bool,
        at: Option<u32>,
    ) -> Result<Bound> {
        for side in [&left, &right] {
            if !side.t.ty.is_text() && side.t.ty != Ty::Unknown {
                let symbol = if fold_case { "~*" } else { "~" };
                return Err(no_operator(symbol, left.t.ty, right.t.ty, at));
            }
        }
        let name = if fold_case { "texticregexeq" } else { "textregexeq" };
        // A char(n) value is matched together with its padding blanks.
        let subject = shown_as_text(left);
        let found = self.call_function(name, vec![subject, right], at)?;
        let expr = if negated { Expr::Not(Box::new(found.expr)) } else { found.expr };
        Ok(Bound { expr, ..found })
    }

    /// Binds any binary operator except AND and OR.
    pub(super) fn binary(
        &mut self,
        op: &BinaryOperator,
        left: Bound,
        right: Bound,
        at: Option<u32>,
    ) -> Result<Bound> {
        let begin = left.at;
        let bound = if let Some(cmp) = comparison(op) {
            self.compare(cmp, left, right, at)?
        } else if let Some(arith) = arithmetic(op) {
            self.arithmetic(arith, op, left, right, at)?
        } else {
            self.other_operator(op, left, right, at)?
        };
        Ok(Bound { at: begin, ..bound })
    }

    fn other_operator(
        &mut self,
        op: &BinaryOperator,
        left: Bound,
        right: Bound,
        at: Option<u32>,
    ) -> Result<Bound> {
        match op {
            BinaryOperator::Concat => self.concat(left, right, at),
            BinaryOperator::Power => {
                let arguments = vec![left, right];
                self.call_function("power", arguments, at)
            }
            BinaryOperator::StartsWith => self.call_function("starts_with", vec![left, right], at),
            BinaryOperator::Arrow | BinaryOperator::LongArrow if left.t.ty == Ty::Json => {
                let name = match (op, right.t.ty.is_integer()) {
                    (BinaryOperator::Arrow, true) => "json.element",
                    (BinaryOperator::Arrow, false) => "json.field",
                    (_, true) => "json.element_text",
                    (_, false) => "json.field_text",
                };
                self.call_function(name, vec![left, right], at)
            }
            BinaryOperator::HashArrow if left.t.ty == Ty::Json => {
                self.call_function("json.path", vec![left, right], at)
            }
            BinaryOperator::HashLongArrow if left.t.ty == Ty::Json => {
                self.call_function("json.path_text", vec![left, right], at)
            }
            BinaryOperator::Contains | BinaryOperator::ContainedBy | BinaryOperator::Overlap
                if left.t.ty.element().is_some() || right.t.ty.element().is_some() =>
            {
                let (left, right) = self.comparable(op.symbol(), left, right, at)?;
                let (name, arguments) = match op {
                    BinaryOperator::Contains => ("arraycontains", vec![left, right]),
                    BinaryOperator::ContainedBy => ("arraycontains", vec![right, left]),
                    _ => ("arrayoverlap", vec![left, right]),
                };
                let expr = self.array_call(name, arguments)?;
                Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
            }
            BinaryOperator::RegexMatch => self.regex(left, right, false, false, at),
            BinaryOperator::RegexIMatch => self.regex(left, right, true, false, at),
            BinaryOperator::RegexNotMatch => self.regex(left, right, false, true, at),
            BinaryOperator::RegexNotIMatch => self.regex(left, right, true, true, at),
            BinaryOperator::Qualified(name) => {
                let message = format!("operator does not exist: {}", name.join("."));
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).at(at))
            }
            BinaryOperator::LikeMatch => self.like(left, right, Some('\\'), false, false),
            BinaryOperator::NotLikeMatch => self.like(left, right, Some('\\'), true, false),
            BinaryOperator::ILikeMatch => self.like(left, right, Some('\\'), false, true),
            BinaryOperator::NotILikeMatch => self.like(left, right, Some('\\'), true, true),
            _ => Err(SqlError::unsupported(format!("operator {op}")).at(at)),
        }
    }

    /// Binds a comparison. Fails with 42883 if the two types have no such operator.
    pub(super) fn compare(&mut self, op: CmpOp, left: Bound, right: Bound, at: Option<u32>) -> Result<Bound> {
        let (left, right) = self.comparable(op.symbol(), left, right, at)?;
        let expr = Expr::Compare(op, Box::new((left, right)));
        Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
    }

    /// Casts two operands to types that `Datum::order` can compare.
    pub(super) fn comparable(
        &mut self,
        symbol: &str,
        left: Bound,
        right: Bound,
        at: Option<u32>,
    ) -> Result<(Expr, Expr)> {
        let (l, r) = (left.t.ty, right.t.ty);
        let whole = |t: Ty| t.is_integer() || t.is_oid();
        if whole(l) && whole(r) {
            return Ok((left.expr, right.expr));
        }
        // A char(n) that is compared with a text is cast to text. The cast stays visible in the expression,
        // so no index in the order of char(n) is used for it. A char without a length may end with blanks,
        // which do not count in comparisons. So it is cast, too.
        let shield = |b: Bound, other: Ty| {
            let is_bare = b.t.length().is_none() && !matches!(b.expr, Expr::Param(_) | Expr::Const(_));
            let is_like_it = matches!(other, Ty::Char | Ty::Varchar) || !other.is_text();
            if b.t.ty != Ty::Char || (is_like_it && !is_bare) {
                return b;
            }
            let text = Typed::plain(Ty::Text);
            let t = if is_like_it { b.t } else { text };
            Bound { expr: Expr::Cast(Box::new(b.expr), Ty::Char, text, false), t, at: b.at }
        };
        let (left, right) = (shield(left, r), shield(right, l));
        let ty = match (l, r) {
            (Ty::Unknown, Ty::Unknown) => Ty::Text,
            (Ty::Void | Ty::Json, _) | (_, Ty::Void | Ty::Json) => return Err(no_operator(symbol, l, r, at)),
            // A real is compared with a real as it is, and with any other number as a double.
            (Ty::Float4, Ty::Float4 | Ty::Unknown) | (Ty::Unknown, Ty::Float4) => Ty::Float4,
            (Ty::Float4, n) | (n, Ty::Float4) if n.is_number() => Ty::Float8,
            // A literal that is compared with a varchar becomes text. One that is compared with a char(n)
            // becomes char.
            (Ty::Varchar | Ty::Name, Ty::Unknown) | (Ty::Unknown, Ty::Varchar | Ty::Name) => Ty::Text,
            (Ty::Char, Ty::Char | Ty::Varchar) | (Ty::Varchar, Ty::Char) => Ty::Char,
            (a, b) if a.is_text() && b.is_text() => Ty::Text,
            (Ty::Time, Ty::Interval) | (Ty::Interval, Ty::Time) => Ty::Interval,
            // An array can only be compared with an array of the same type.
            (Ty::Array(a), Ty::Array(b)) if a != b => return Err(no_operator(symbol, l, r, at)),
            (a, b) => crate::ty::common(a, b).ok_or_else(|| no_operator(symbol, l, r, at))?,
        };
        let left = self.cast(left, Typed::plain(ty), false)?;
        let right = self.cast(right, Typed::plain(ty), false)?;
        Ok((left.expr, right.expr))
    }

    fn arithmetic(
        &mut self,
        arith: ArithOp,
        op: &BinaryOperator,
        left: Bound,
        right: Bound,
        at: Option<u32>,
    ) -> Result<Bound> {
        let symbol = op.symbol();
        // `1 + date` is bound as `date + 1`, and `interval + timestamp` as `timestamp + interval`.
        let late = |t: Ty| t.is_moment() || t == Ty::Time;
        let swap = (arith == ArithOp::Add && right.t.ty.is_moment() && !left.t.ty.is_moment())
            || (arith == ArithOp::Add && right.t.ty == Ty::Time && !late(left.t.ty))
            || (arith == ArithOp::Multiply && right.t.ty == Ty::Interval && left.t.ty.is_number());
        let (left, right) = if swap { (right, left) } else { (left, right) };
        let spans = matches!(left.t.ty, Ty::Interval | Ty::Timestamp | Ty::TimestampTz)
            || (left.t.ty == Ty::Date && arith == ArithOp::Subtract);
        let adds = matches!(arith, ArithOp::Add | ArithOp::Subtract);
        // A time that is added to a timestamp, or subtracted from it, counts as the interval since midnight.
        let right = match adds && right.t.ty == Ty::Time && spans && !(left.t.ty == Ty::Interval && swap) {
            true => self.cast(right, Typed::plain(Ty::Interval), false)?,
            false => right,
        };
        if (left.t.ty, right.t.ty, arith) == (Ty::Time, Ty::Time, ArithOp::Add) {
            let name = Ty::Time.name();
            let message = format!("operator is not unique: {name} {symbol} {name}");
            return Err(SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message).at(at));
        }
        let (l, r) = match (left.t.ty, right.t.ty) {
            (Ty::Unknown, Ty::Unknown) => {
                let message = format!("operator is not unique: unknown {symbol} unknown");
                return Err(SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message)
                    .with_hint("Could not choose a best candidate operator. You might need to add explicit type casts.")
                    .at(at));
            }
            (Ty::Unknown, t) => (unknown_beside(arith, t), t),
            (t, Ty::Unknown) => (t, unknown_beside(arith, t)),
            both => both,
        };
        let (class, types, result) =
            signature(arith, l, r).ok_or_else(|| no_operator(symbol, left.t.ty, right.t.ty, at))?;
        let left = self.cast(left, Typed::plain(types.0), false)?;
        let right = self.cast(right, Typed::plain(types.1), false)?;
        // As in PostgreSQL, a strict operator of a constant NULL is NULL, and its other side is not computed.
        let has_null = [&left.expr, &right.expr].iter().any(|e| matches!(e, Expr::Const(Value::Null)));
        let expr = match has_null && !self.keeps_operands {
            true => Expr::NULL,
            false => Expr::Arith(arith, class, Box::new((left.expr, right.expr))),
        };
        Ok(Bound { expr, t: Typed::plain(result), at })
    }

    /// Binds `||` with an array on one side. An untyped operand on the other side is taken for an array, too.
    fn concat_array(&mut self, left: Bound, right: Bound, at: Option<u32>) -> Result<Bound> {
        let types = (left.t.ty, right.t.ty);
        let is_array = |t: Ty| t.element().is_some() || t == Ty::Unknown;
        let name = match types {
            (l, r) if is_array(l) && is_array(r) => "array_cat",
            (l, _) if l.element().is_some() => "array_append",
            _ => "array_prepend",
        };
        let (left, right) = match (types, name) {
            ((Ty::Unknown, array), "array_cat") => (self.cast(left, Typed::plain(array), false)?, right),
            ((array, Ty::Unknown), "array_cat") => (left, self.cast(right, Typed::plain(array), false)?),
            _ => (left, right),
        };
        let bound = self.array_function(name, &[left, right], at);
        bound
            .unwrap_or_else(|| Err(no_operator("||", types.0, types.1, at)))
            .map_err(|_| no_operator("||", types.0, types.1, at))
    }

    fn concat(&mut self, left: Bound, right: Bound, at: Option<u32>) -> Result<Bound> {
        if left.t.ty.element().is_some() || right.t.ty.element().is_some() {
            return self.concat_array(left, right, at);
        }
        // If one operand is bytea and the other a text, the bytea is converted to text.
        let is_bytes = |t: Ty| matches!(t, Ty::Bytea | Ty::Unknown);
        let bytes =
            [left.t.ty, right.t.ty].contains(&Ty::Bytea) && is_bytes(left.t.ty) && is_bytes(right.t.ty);
        let ty = if bytes { Ty::Bytea } else { Ty::Text };
        let one_is_text = [left.t.ty, right.t.ty].iter().any(|t| t.is_text() || *t == Ty::Unknown);
        if !bytes && !one_is_text {
            return Err(no_operator("||", left.t.ty, right.t.ty, at));
        }
        let left = self.cast(left, Typed::plain(ty), false)?;
        let right = self.cast(right, Typed::plain(ty), false)?;
        Ok(Bound { expr: Expr::Concat(Box::new((left.expr, right.expr))), t: Typed::plain(ty), at })
    }

    /// Binds LIKE. A char(n) operand is matched together with its padding blanks, as in PostgreSQL.
    pub(super) fn like(
        &mut self,
        subject: Bound,
        pattern: Bound,
        escape: Option<char>,
        negated: bool,
        fold_case: bool,
    ) -> Result<Bound> {
        let at = subject.at;
        for side in [&subject, &pattern] {
            if !side.t.ty.is_text() && side.t.ty != Ty::Unknown {
                let symbol = if fold_case { "~~*" } else { "~~" };
                return Err(no_operator(symbol, subject.t.ty, pattern.t.ty, at));
            }
        }
        let subject = self.cast(shown_as_text(subject), Typed::plain(Ty::Text), false)?.expr;
        let pattern = self.cast(pattern, Typed::plain(Ty::Text), false)?.expr;
        let like = Like { subject, pattern, escape, negated, fold_case };
        Ok(Bound { expr: Expr::Like(Box::new(like)), t: Typed::plain(Ty::Bool), at })
    }

    pub(super) fn unary(&mut self, op: UnaryOperator, b: Bound) -> Result<Bound> {
        match op {
            UnaryOperator::Not => {
                let at = b.at;
                let expr = Expr::Not(Box::new(self.condition(b, "NOT")?));
                Ok(Bound { expr, t: Typed::plain(Ty::Bool), at })
            }
            UnaryOperator::Plus if b.t.ty.is_number() => Ok(b),
            UnaryOperator::Minus => self.minus(b),
            UnaryOperator::Abs => {
                let at = b.at;
                self.call_function("abs", vec![b], at)
            }
            UnaryOperator::CubeRoot => {
                let at = b.at;
                self.call_function("cbrt", vec![b], at)
            }
            UnaryOperator::BitwiseNot if b.t.ty.is_integer() => {
                let at = b.at;
                let ones = self.cast(
                    Bound { expr: Expr::Const(Value::Int4(-1)), t: Typed::plain(Ty::Int4), at },
                    b.t,
                    false,
                )?;
                self.arithmetic(ArithOp::BitXor, &BinaryOperator::BitwiseXor, b, ones, at)
            }
            UnaryOperator::Factorial => {
                let message = format!("operator does not exist: !! {}", b.t.ty.name());
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).at(b.at))
            }
            UnaryOperator::SquareRoot => {
                let at = b.at;
                self.call_function("sqrt", vec![b], at)
            }
            _ => Err(SqlError::unsupported(format!("operator {op}")).at(b.at)),
        }
    }

    fn minus(&mut self, b: Bound) -> Result<Bound> {
        let b = if b.t.ty == Ty::Unknown { self.cast(b, Typed::plain(Ty::Float8), false)? } else { b };
        if let Expr::Const(value) = &b.expr
            && let Some(negated) = negated(value)
        {
            return Ok(Bound { expr: Expr::Const(negated), t: Typed::plain(b.t.ty), at: b.at });
        }
        let class = match b.t.ty {
            Ty::Interval => Class::Intervals,
            t => class_of(t).ok_or_else(|| {
                let message = format!("operator does not exist: - {}", t.name());
                SqlError::new(SqlState::UNDEFINED_FUNCTION, message).at(b.at)
            })?,
        };
        Ok(Bound { expr: Expr::Negate(class, Box::new(b.expr)), t: Typed::plain(b.t.ty), at: b.at })
    }
}

fn negated(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Int4(n) => Value::Int4(n.checked_neg()?),
        Value::Int8(n) => Value::Int8(n.checked_neg()?),
        Value::Float4(f) => Value::Float4(-f),
        Value::Float8(f) => Value::Float8(-f),
        _ => return None,
    })
}

fn class_of(ty: Ty) -> Option<Class> {
    Some(match ty {
        Ty::Int2 => Class::Int2,
        Ty::Int4 => Class::Int4,
        Ty::Int8 => Class::Int8,
        Ty::Float4 => Class::Float4,
        Ty::Float8 => Class::Float8,
        Ty::Numeric => Class::Numeric,
        _ => return None,
    })
}

/// Returns the type that an untyped operand gets from the known type of the other operand.
fn unknown_beside(op: ArithOp, known: Ty) -> Ty {
    match known {
        Ty::Date if op == ArithOp::Add => Ty::Int4,
        Ty::Timestamp | Ty::TimestampTz | Ty::Time if op == ArithOp::Add => Ty::Interval,
        Ty::Interval if matches!(op, ArithOp::Multiply | ArithOp::Divide) => Ty::Float8,
        t => t,
    }
}

type Signature = (Class, (Ty, Ty), Ty);

/// Returns the class, the operand types and the result type of an arithmetic operator.
fn signature(op: ArithOp, l: Ty, r: Ty) -> Option<Signature> {
    if matches!(op, ArithOp::ShiftLeft | ArithOp::ShiftRight) && r == Ty::Int8 {
        return None;
    }
    if let (Some(a), Some(b)) = (l.number_rank(), r.number_rank()) {
        let wide = if a >= b { l } else { r };
        // If only one operand is a real and no operand is a double, both become doubles.
        let wide = if wide == Ty::Float4 && l != r { Ty::Float8 } else { wide };
        return number_signature(op, wide, l);
    }
    let adds = op == ArithOp::Add;
    let sums = adds || op == ArithOp::Subtract;
    let scales = matches!(op, ArithOp::Multiply | ArithOp::Divide);
    Some(match (l, r) {
        (Ty::Date, n) if sums && n.is_integer() => (Class::DateDays, (l, Ty::Int4), Ty::Date),
        (Ty::Date, Ty::Date) if op == ArithOp::Subtract => (Class::DateDate, (l, r), Ty::Int4),
        (Ty::Date, Ty::Interval) if sums => (Class::MomentInterval, (Ty::Timestamp, r), Ty::Timestamp),
        (Ty::Timestamp | Ty::TimestampTz, Ty::Interval) if sums => (Class::MomentInterval, (l, r), l),
        (Ty::Timestamp | Ty::TimestampTz | Ty::Date, Ty::Timestamp | Ty::TimestampTz | Ty::Date)
            if op == ArithOp::Subtract =>
        {
            let ty = crate::ty::common(l, r)?;
            (Class::Moments, (ty, ty), Ty::Interval)
        }
        (Ty::Date, Ty::Time) if adds => (Class::DateTime, (l, r), Ty::Timestamp),
        (Ty::Time, Ty::Interval) if sums => (Class::TimeInterval, (l, r), Ty::Time),
        (Ty::Time, Ty::Time) if op == ArithOp::Subtract => (Class::Times, (l, r), Ty::Interval),
        (Ty::Interval, Ty::Interval) if sums => (Class::Intervals, (l, r), Ty::Interval),
        (Ty::Interval, n) if scales && n.is_number() => {
            (Class::IntervalFactor, (l, Ty::Float8), Ty::Interval)
        }
        _ => return None,
    })
}

fn number_signature(op: ArithOp, wide: Ty, left: Ty) -> Option<Signature> {
    let is_bits = matches!(op, ArithOp::BitAnd | ArithOp::BitOr | ArithOp::BitXor);
    match op {
        ArithOp::ShiftLeft | ArithOp::ShiftRight if wide.is_integer() => {
            Some((class_of(left)?, (left, Ty::Int4), left))
        }
        ArithOp::ShiftLeft | ArithOp::ShiftRight => None,
        ArithOp::Remainder if matches!(wide, Ty::Float4 | Ty::Float8) => None,
        _ if is_bits && !wide.is_integer() => None,
        _ => Some((class_of(wide)?, (wide, wide), wide)),
    }
}

/// Returns the error 42883: the operator does not exist for these two types.
pub fn no_operator(symbol: &str, l: Ty, r: Ty, at: Option<u32>) -> SqlError {
    no_operator_of(symbol, l.name(), r.name(), at)
}

/// Returns the error 42883: the operator does not exist for the types with these names.
pub fn no_operator_of(symbol: &str, l: &str, r: &str, at: Option<u32>) -> SqlError {
    let message = format!("operator does not exist: {l} {symbol} {r}");
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
        .at(at)
}
