//! Binds GROUP BY: the group keys, and the grouping sets of GROUPING SETS, ROLLUP and CUBE.
//!
//! Invariants
//! 1. If GROUP BY has several items, each grouping set of one item is combined with each grouping set of the
//!    others (SQL:2016, 7.13).
//! 2. A key that is in several sets is one key.
//! 3. A group key is NULL in the rows of a grouping set that does not have the key. If the key is a constant,
//!    this holds only where an output or a sort key is exactly this constant. Inside a larger expression the
//!    constant keeps its value, as in PostgreSQL.
//!
//! This module does not know how groups are formed.

use super::Binder;
use super::bound::Bound;
use super::call::plain_argument;
use super::items::literal_position;
use super::order::orderable;
use super::scope::{ColumnMatch, GROUPING_SET_SLOT, Grouping, Relation, Scope};
use crate::ast::{self, Expr as Ast, GroupItem, SelectItem};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{CmpOp, Expr};
use crate::names::fold;
use crate::ty::{Ty, Typed};
use varve_engine::Value;

/// The maximum numbers of sets in one GROUP BY and of elements in CUBE, as in PostgreSQL.
const SETS_MAX: usize = 4096;
const CUBE_MAX: usize = 12;

/// A set of items as written.
type Set = Vec<Ast>;

impl Binder<'_> {
    /// Binds the GROUP BY clause of a grouped query.
    pub(super) fn grouping(&mut self, s: &ast::Select, scope: &mut Scope) -> Result<()> {
        let mut sets: Vec<Set> = vec![Vec::new()];
        for item in &s.group_by {
            sets = product(&sets, &sets_of(item)?)?;
        }
        let mut grouping = Grouping::default();
        scope.no_aggregates = Some("GROUP BY");
        let mut of_keys = Vec::with_capacity(sets.len());
        for set in &sets {
            let mut keys = Vec::with_capacity(set.len());
            for item in set {
                let key = self.key(item, s, &mut grouping, scope)?;
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            of_keys.push(keys.into());
        }
        scope.no_aggregates = None;
        match s.group_by.iter().any(|item| !matches!(item, GroupItem::Expr(_))) {
            true => grouping.sets = of_keys,
            false => grouping.keyed = keyed(&grouping, scope),
        }
        scope.grouping = Some(grouping);
        Ok(())
    }

    /// Returns the ordinal of a key. Adds the key if it is missing.
    fn key(
        &mut self,
        item: &Ast,
        s: &ast::Select,
        grouping: &mut Grouping,
        scope: &mut Scope,
    ) -> Result<usize> {
        let (e, output) = group_item(item, s, scope)?;
        self.note_group_item(item, output, s, scope);
        let is_known = |(slot, (k, _)): (usize, &(Ast, Bound))| {
            *k == e && grouping.constants.iter().all(|(constant, of)| *constant != slot || *of == output)
        };
        if let Some(known) = grouping.keys.iter().enumerate().position(is_known) {
            self.note_known(&e, scope, true);
            return Ok(known);
        }
        let b = self.expression(&e, scope)?;
        let key = self.known(b)?;
        orderable(key.t, "GROUP BY")?;
        let same = |b: &Bound| matches!((&b.expr, &key.expr), (Expr::Column(m), Expr::Column(n)) if m == n);
        if let Some(known) = grouping.keys.iter().position(|(_, b)| same(b)) {
            return Ok(known);
        }
        let slot = grouping.keys.len();
        // A key that names columns is found as it is written, although a NULL has made it a constant.
        if key.expr.is_folded() && self.without_trace(|b| b.expression(&e, &mut Scope::default())).is_ok() {
            let output = output.or_else(|| self.output_of_constant(&key, s, scope));
            grouping.constants.push((slot, output));
        }
        grouping.keys.push((e, key));
        Ok(slot)
    }

    /// Notes that an item of GROUP BY is the name of an output. A star before that output would stand for
    /// several outputs.
    fn note_group_item(&mut self, item: &Ast, output: Option<usize>, s: &ast::Select, scope: &Scope) {
        let item = item.unnested();
        let is_item =
            |i: &SelectItem| matches!(i, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
        if let (Ast::Identifier(name), Some(n)) = (item, output)
            && scope.find(None, &name.value) == ColumnMatch::Nothing
            && s.projection[..n].iter().all(is_item)
        {
            self.note_output(item, n);
        }
    }

    /// Returns the position of the first item of the select list that is this constant, even if it is written
    /// in another way (`1` and `1::int`).
    fn output_of_constant(&mut self, key: &Bound, s: &ast::Select, scope: &mut Scope) -> Option<usize> {
        let Expr::Const(value) = &key.expr else { return None };
        s.projection.iter().position(|item| {
            let (SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) = item else {
                return false;
            };
            // PostgreSQL compares before it computes. So only a literal is a constant here.
            let literal = match e {
                Ast::Cast { expr, .. } => expr.unnested(),
                other => other,
            };
            if !matches!(literal, Ast::Value(_)) {
                return false;
            }
            let bound = self.without_trace(|b| b.expression(e, scope));
            let is_value = |v: &Value| format!("{v:?}") == format!("{value:?}");
            let is_it = |b: Bound| b.t == key.t && matches!(&b.expr, Expr::Const(v) if is_value(v));
            bound.is_ok_and(is_it)
        })
    }

    /// Binds `grouping(a, b)`. Its value has a bit for each argument, which is set if the grouping set does
    /// not have the argument. The last argument has the lowest bit.
    pub(super) fn grouping_function(
        &mut self,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let refused = || {
            let message = "arguments to GROUPING must be grouping expressions of the associated query level";
            SqlError::new(SqlState::GROUPING_ERROR, message).at(at)
        };
        if let Some(clause) = scope.no_aggregates {
            let message = format!("grouping operations are not allowed in {clause}");
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).at(at));
        }
        if f.args.len() > 31 {
            let message = "GROUPING must have fewer than 32 arguments";
            return Err(SqlError::new(SqlState("54023"), message).at(at));
        }
        let Some(grouping) = scope.grouping.as_ref() else { return Err(refused()) };
        let (count, sets) = (grouping.keys.len(), grouping.sets.clone());
        let mut keys = Vec::with_capacity(f.args.len());
        for argument in &f.args {
            let written = plain_argument(argument)?;
            let constant = |grouping: &Grouping| {
                let same =
                    |(slot, _): &&(usize, Option<usize>)| grouping.keys[*slot].0 == *written.unnested();
                grouping.constants.iter().find(same).map(|(slot, _)| *slot)
            };
            if let Some(slot) = scope.grouping.as_ref().and_then(constant) {
                self.note_known(written, scope, true);
                keys.push(slot);
                continue;
            }
            let bound = self.expression(written, scope).map_err(|_| refused())?;
            match bound.expr {
                Expr::Slot(n) if n < count => keys.push(n),
                _ => return Err(refused()),
            }
        }
        let bits = |set: &[usize]| keys.iter().fold(0i32, |bits, k| bits << 1 | i32::from(!set.contains(k)));
        let branch = |(n, set): (usize, &[usize])| {
            let sides = (Expr::Slot(GROUPING_SET_SLOT), Expr::Const(Value::Int8(n as i64)));
            (Expr::Compare(CmpOp::Eq, Box::new(sides)), Expr::Const(Value::Int4(bits(set))))
        };
        let all = Expr::Const(Value::Int4(0));
        let expr = match sets.is_empty() {
            true => all,
            false => {
                Expr::Case(sets.iter().map(AsRef::as_ref).enumerate().map(branch).collect(), Box::new(all))
            }
        };
        Ok(Bound { expr, t: Typed::plain(Ty::Int4), at })
    }
}

/// Returns the columns of the relations whose primary keys are among the keys.
fn keyed(grouping: &Grouping, scope: &Scope) -> Vec<std::ops::Range<usize>> {
    let is_key = |c: usize| grouping.keys.iter().any(|(_, b)| matches!(b.expr, Expr::Column(n) if n == c));
    let is_keyed = |r: &&Relation| !r.key.is_empty() && r.key.iter().all(|c| is_key(r.first + c));
    scope.relations.iter().filter(is_keyed).map(|r| r.first..r.first + r.columns.len()).collect()
}

/// Returns the sets of an item of GROUP BY.
fn sets_of(item: &GroupItem) -> Result<Vec<Set>> {
    Ok(match item {
        GroupItem::Rollup(parts) => (0..=parts.len()).rev().map(|n| parts[..n].concat()).collect(),
        GroupItem::Cube(parts) => cube(parts)?,
        GroupItem::Sets(items) => {
            let mut out = Vec::new();
            for item in items {
                out.extend(sets_of(item)?);
            }
            out
        }
        GroupItem::Empty => vec![Vec::new()],
        GroupItem::Expr(Ast::Tuple(items)) => vec![items.clone()],
        GroupItem::Expr(key) => vec![vec![key.clone()]],
    })
}

/// Returns all subsets of the parts. The first is the whole set.
fn cube(parts: &[Set]) -> Result<Vec<Set>> {
    if parts.len() > CUBE_MAX {
        let message = format!("CUBE is limited to {CUBE_MAX} elements");
        return Err(SqlError::new(SqlState("54011"), message));
    }
    let subset = |mask: usize| {
        let chosen = parts.iter().enumerate().filter(|(n, _)| mask & (1 << (parts.len() - 1 - n)) != 0);
        chosen.flat_map(|(_, part)| part.clone()).collect()
    };
    Ok((0..1usize << parts.len()).rev().map(subset).collect())
}

/// Combines each set of one list with each set of the other.
fn product(left: &[Set], right: &[Set]) -> Result<Vec<Set>> {
    if left.len() * right.len() > SETS_MAX {
        let message = format!("too many grouping sets present (maximum {SETS_MAX})");
        return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
    }
    Ok(left.iter().flat_map(|l| right.iter().map(|r| [l.as_slice(), r].concat())).collect())
}

/// Returns the item of the select list at this position, which counts from 0. Each column of a `*` counts.
/// Also returns the place of the item in the list as it is written, if the item is no `*`.
fn at_position(n: usize, s: &ast::Select, scope: &Scope) -> Option<(Ast, Option<usize>)> {
    let mut left = n;
    for (at, item) in s.projection.iter().enumerate() {
        let mut columns = match item {
            SelectItem::Wildcard(_) => star_columns(None, scope),
            SelectItem::QualifiedWildcard(name) => star_columns(Some(name.last()), scope),
            SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
                if left == 0 {
                    return Some((e.unnested().clone(), Some(at)));
                }
                left -= 1;
                continue;
            }
        };
        if left < columns.len() {
            return Some((columns.swap_remove(left), None));
        }
        left -= columns.len();
    }
    None
}

/// Returns the columns of `*`, or of `table.*`.
fn star_columns(table: Option<&str>, scope: &Scope) -> Vec<Ast> {
    let mut columns = Vec::new();
    for relation in scope.relations.iter().filter(|relation| table.is_none_or(|t| t == relation.alias)) {
        if table.is_none() {
            let merged = scope.merged.iter().filter(|m| m.first == relation.first);
            columns.extend(merged.map(|m| Ast::Identifier(ast::Ident::new(&m.name))));
        }
        for ((name, _), ordinal) in relation.columns.iter().zip(relation.first..) {
            if table.is_some() || !scope.is_merged(ordinal) {
                let parts = [&relation.alias, name].map(ast::Ident::new);
                columns.push(Ast::CompoundIdentifier(parts.into()));
            }
        }
    }
    columns
}

/// Returns the expression of a GROUP BY item, which is a number, an output's alias, or the expression itself.
/// Also returns its position in the select list, if it is there.
fn group_item(item: &Ast, s: &ast::Select, scope: &Scope) -> Result<(Ast, Option<usize>)> {
    let item = item.unnested();
    let written = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => Some(e.unnested().clone()),
        _ => None,
    };
    if let Some(n) = literal_position(item, "GROUP BY")? {
        let found = usize::try_from(n - 1).ok().and_then(|n| at_position(n, s, scope));
        return found.ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("GROUP BY position {n} is not in select list"),
            )
        });
    }
    if let Ast::Identifier(ident) = item
        && scope.find(None, &fold(ident)) == ColumnMatch::Nothing
    {
        let name = fold(ident);
        for (n, selected) in s.projection.iter().enumerate() {
            if let SelectItem::ExprWithAlias { expr, alias } = selected
                && fold(alias) == name
            {
                return Ok((expr.unnested().clone(), Some(n)));
            }
        }
    }
    let output = s.projection.iter().position(|selected| written(selected).is_some_and(|e| e == *item));
    Ok((item.clone(), output))
}
