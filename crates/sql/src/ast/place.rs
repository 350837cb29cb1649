//! Positions of syntax tree nodes in the text of the statement.

use super::{Expr, ObjectName, Query, SelectItem, SetExpr, ValueFunction};

/// The position of a part in the text of its statement. Two positions are always equal, so that comparisons
/// of trees ignore them.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextPosition(u32);

impl TextPosition {
    /// The position of a part that is in no text.
    pub const NONE: TextPosition = TextPosition(0);

    /// Returns the position of this character, counted from 1.
    pub fn at(character: u32) -> TextPosition {
        TextPosition(character)
    }

    /// Returns the character, counted from 1.
    pub fn position(self) -> Option<u32> {
        (self.0 != 0).then_some(self.0)
    }

    /// Returns this position, or the other one if this position is not known.
    fn or(self, other: impl FnOnce() -> TextPosition) -> TextPosition {
        if self.0 == 0 { other() } else { self }
    }
}

impl PartialEq for TextPosition {
    fn eq(&self, _: &TextPosition) -> bool {
        true
    }
}

impl Eq for TextPosition {}

/// A part of a text.
pub trait Placed {
    /// Returns the position at which the part begins. This is the position of its first part with a known
    /// position.
    fn place(&self) -> TextPosition;
}

impl Placed for ObjectName {
    fn place(&self) -> TextPosition {
        first(self.0.iter().map(|part| part.at))
    }
}

impl<T: Placed> Placed for Box<T> {
    fn place(&self) -> TextPosition {
        (**self).place()
    }
}

impl Placed for Query {
    fn place(&self) -> TextPosition {
        let with = self.with.iter().flat_map(|with| &with.cte_tables).map(|cte| cte.alias.name.at);
        first(with).or(|| self.body.place())
    }
}

impl Placed for SetExpr {
    fn place(&self) -> TextPosition {
        match self {
            SetExpr::Select(select) => first(select.projection.iter().map(Placed::place)),
            SetExpr::Query(query) => query.place(),
            SetExpr::SetOperation { left, .. } => left.place(),
            SetExpr::Values(rows) => first(rows.iter().flatten().map(Placed::place)),
        }
    }
}

impl Placed for SelectItem {
    fn place(&self) -> TextPosition {
        match self {
            SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => e.place(),
            SelectItem::Wildcard(at) => *at,
            SelectItem::QualifiedWildcard(name) => name.place(),
        }
    }
}

impl Placed for Expr {
    fn place(&self) -> TextPosition {
        match self {
            Expr::Identifier(name) => name.at,
            Expr::CompoundIdentifier(parts) => first(parts.iter().map(|part| part.at)),
            Expr::Value(constant) => constant.at,
            Expr::Parameter(_, at)
            | Expr::Default(at)
            | Expr::ValueFunction(ValueFunction { at, .. })
            | Expr::Row(_, at)
            | Expr::ArraySubquery(_, at) => *at,
            Expr::Case(case) => case.at,
            Expr::Function(f) => f.name.place(),
            Expr::Nested(e)
            | Expr::UnaryOp { expr: e, .. }
            | Expr::IsNull(e)
            | Expr::IsNotNull(e)
            | Expr::IsTrue(e)
            | Expr::IsNotTrue(e)
            | Expr::IsFalse(e)
            | Expr::IsNotFalse(e)
            | Expr::IsUnknown(e)
            | Expr::IsNotUnknown(e)
            | Expr::Cast { expr: e, .. }
            | Expr::Collate { expr: e, .. }
            | Expr::Extract { expr: e, .. }
            | Expr::Trim { expr: e, .. }
            | Expr::Indirection { root: e, .. } => e.place(),
            _ => first_operand(self),
        }
    }
}

/// Returns the position of the first operand.
fn first_operand(e: &Expr) -> TextPosition {
    match e {
        Expr::BinaryOp { left, right, .. }
        | Expr::IsDistinctFrom(left, right)
        | Expr::IsNotDistinctFrom(left, right)
        | Expr::AnyOp { left, right, .. }
        | Expr::AllOp { left, right, .. }
        | Expr::AtTimeZone { timestamp: left, time_zone: right }
        | Expr::Position { expr: left, r#in: right } => left.place().or(|| right.place()),
        Expr::InList { expr, .. }
        | Expr::InSubquery { expr, .. }
        | Expr::Between { expr, .. }
        | Expr::Like { expr, .. }
        | Expr::SimilarTo { expr, .. }
        | Expr::Overlay { expr, .. }
        | Expr::Substring { expr, .. } => expr.place(),
        Expr::Exists { subquery, .. } => subquery.place(),
        Expr::Subquery(query) => query.place(),
        Expr::Array(items) | Expr::Tuple(items) => first(items.iter().map(Placed::place)),
        _ => TextPosition::NONE,
    }
}

fn first(mut places: impl Iterator<Item = TextPosition>) -> TextPosition {
    places.find(|place| place.position().is_some()).unwrap_or_default()
}
