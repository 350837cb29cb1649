//! The scope of a query: what column names mean in it.
//!
//! Invariants
//! 1. The columns of all relations of FROM are numbered one after the other, as in the input row.
//! 2. In a grouped query, an expression outside of aggregates sees only group keys and aggregates.
//!
//! This module does not know plans.

use std::ops::Range;

use super::bound::Bound;
use crate::ast;

use crate::eval::Expr;
use crate::oid::Oid;
use crate::plan::{AggCall, SetCall, WinCall};
use crate::sink::Origin;
use crate::ty::Typed;

/// A relation in FROM.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The name that qualifies the relation's columns.
    pub alias: String,
    /// The table's own name, if the alias hides it.
    pub hidden: Option<String>,
    /// Names and types of the columns.
    pub columns: Vec<(String, Typed)>,
    /// For each column, the column of a table or view that it shows, if that is known. The list may be
    /// shorter than `columns`.
    pub origins: Vec<Option<Origin>>,
    /// Whether some columns are fields of a column that holds rows of a function (`record`).
    pub has_records: bool,
    /// The ordinals of the primary key's columns within the relation. The list is empty if there is no
    /// primary key.
    pub key: Vec<usize>,
    /// The ordinal of the relation's first column in the input row.
    pub first: usize,
}

/// A column that USING or NATURAL merges from a column on each side of the join.
#[derive(Debug, Clone)]
pub struct Merged {
    /// The name of the merged column.
    pub name: String,
    /// Its value, as an expression over the joined row.
    pub expr: Expr,
    /// The type of the merged column.
    pub t: Typed,
    /// The ordinals of the columns that the merged column replaces.
    pub hides: Vec<usize>,
    /// The ordinal of the first column of the join.
    pub first: usize,
}

/// What a column's name means in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnMatch {
    /// No column.
    Nothing,
    /// One column: its ordinal in the input row, and its type.
    Column(usize, Typed),
    /// One merged column: its index in `Scope::merged`.
    Merged(usize),
    /// Several columns.
    Several,
}

/// An aggregate of a grouped query.
#[derive(Debug, Clone)]
pub struct WrittenAggregate {
    /// The call as written. An equal call uses the same slot.
    pub written: ast::Function,
    /// The bound call.
    pub call: AggCall,
}

/// Group keys and aggregates of a grouped query, collected while it is bound.
#[derive(Debug, Clone, Default)]
pub struct Grouping {
    /// GROUP BY items as written, each with its bound expression.
    pub keys: Vec<(ast::Expr, Bound)>,
    /// Aggregates in the order of their slots. These slots follow the slots of the keys.
    pub calls: Vec<WrittenAggregate>,
    /// Keys that are constants: the slot of each, and the index of the item of the select list that is the
    /// key, if there is one.
    pub constants: Vec<(usize, Option<usize>)>,
    /// The columns of each relation whose whole primary key is among the keys. The key determines these
    /// columns, so they may be used outside of aggregates.
    pub keyed: Vec<Range<usize>>,
    /// The grouping sets, each as slots of keys. The list is empty if rows are grouped by all keys only.
    pub sets: Vec<Box<[usize]>>,
}

/// A temporary slot number for the number of the grouping set that a group belongs to. The final slot follows
/// the keys and aggregates, so it is only known when all of them are bound.
pub const GROUPING_SET_SLOT: usize = usize::MAX / 8;

/// Window calls of a query while its outputs are bound.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    /// The calls of window functions. While the query is bound, the width of the rows below them is not known
    /// yet. Until it is known, an expression refers to the result of call n as slot `WINDOW_SLOT - n`.
    pub calls: Vec<WinCall>,
    /// The windows that the WINDOW clause names.
    pub(super) named: Vec<(String, ast::WindowSpec)>,
    /// The name of the clause that is being bound, if this clause must not have window functions.
    pub refused: Option<&'static str>,
}

/// The temporary slot number of the first window call. Aggregates have temporary numbers, too, which count
/// down from the largest number. So the two kinds never meet.
pub const WINDOW_SLOT: usize = usize::MAX / 2;

/// Calls of set-returning functions of a query, while its outputs are bound.
#[derive(Debug, Default)]
pub struct Sets {
    /// The calls. Until the width of the rows below is known, the slot of call n is `SET_CALL_SLOT - n`. A
    /// call in the arguments of another call comes before this other call.
    pub calls: Vec<SetCall>,
    /// The name of the part of the query that is being bound, if this part must not have such calls.
    pub refused: Option<&'static str>,
}

/// The temporary slot number of the first call of a set-returning function. Window calls count down from
/// twice this number.
pub const SET_CALL_SLOT: usize = usize::MAX / 4;

/// The names that an expression can use.
#[derive(Debug, Default)]
pub struct Scope {
    /// The relations of FROM, in the order of their columns.
    pub relations: Vec<Relation>,
    /// Merged columns of USING and NATURAL. The columns of the outermost join come first.
    pub merged: Vec<Merged>,
    /// The keys and aggregates, while the items of a grouped query are bound.
    pub grouping: Option<Grouping>,
    /// The name of the clause that is being bound, if this clause must not have aggregates. Errors show it.
    pub no_aggregates: Option<&'static str>,
    /// The window calls, while expressions are bound that may have them.
    pub windows: Option<Windows>,
    /// The calls of set-returning functions, while expressions are bound that may have them.
    pub sets: Option<Sets>,
}

impl Scope {
    /// Returns a scope with the columns of one relation.
    pub fn of(relation: Relation) -> Scope {
        Scope { relations: vec![relation], ..Scope::default() }
    }

    /// Returns the column of this name, in all relations or in the relation that `qualifier` names.
    pub fn find(&self, qualifier: Option<&str>, name: &str) -> ColumnMatch {
        let asked = self.relations.iter().filter(|r| qualifier.is_none_or(|q| q == r.alias));
        let columns = asked.flat_map(|r| r.columns_of(name));
        if qualifier.is_some() {
            return only(columns.map(|(ordinal, t)| ColumnMatch::Column(ordinal, t)));
        }
        let merged = self.merged.iter().enumerate().filter(|(_, m)| m.name == name);
        let plain = columns.filter(|(ordinal, _)| !self.is_merged(*ordinal));
        only(
            merged
                .map(|(n, _)| ColumnMatch::Merged(n))
                .chain(plain.map(|(ordinal, t)| ColumnMatch::Column(ordinal, t))),
        )
    }

    /// Returns whether a merged column replaces the column with this ordinal.
    pub fn is_merged(&self, ordinal: usize) -> bool {
        self.merged.iter().any(|m| m.hides.contains(&ordinal))
    }

    /// Returns the number of columns of the input row.
    pub fn width(&self) -> usize {
        self.relations.iter().map(|r| r.first + r.columns.len()).max().unwrap_or(0)
    }

    /// Sets the name of the clause that is being bound, if it must not have window functions. `None` allows
    /// them again.
    pub fn refuse_windows(&mut self, clause: Option<&'static str>) {
        if let Some(windows) = &mut self.windows {
            windows.refused = clause;
        }
    }

    /// Sets the name of the place where functions that return sets are refused, while this place is bound.
    /// Returns the previous name.
    pub fn refuse_sets(&mut self, what: Option<&'static str>) -> Option<&'static str> {
        self.sets.as_mut().and_then(|sets| std::mem::replace(&mut sets.refused, what))
    }

    /// Returns the relation of this name.
    pub fn relation(&self, alias: &str) -> Option<&Relation> {
        self.relations.iter().find(|r| r.alias == alias)
    }

    /// Returns the column of a table or view that an output shows, if the output is a plain column (perhaps a
    /// group key).
    pub fn origin(&self, output: &Expr, t: Typed) -> Option<Origin> {
        let ordinal = match (output, &self.grouping) {
            (Expr::Column(ordinal), _) => *ordinal,
            (Expr::Slot(slot), Some(grouping)) => match grouping.keys.get(*slot)?.1.expr {
                Expr::Column(ordinal) => ordinal,
                _ => return None,
            },
            _ => return None,
        };
        let is_in = |r: &&Relation| (r.first..r.first + r.columns.len()).contains(&ordinal);
        let relation = self.relations.iter().find(is_in)?;
        let at = ordinal - relation.first;
        relation.origins.get(at).copied().flatten().filter(|_| relation.columns[at].1 == t)
    }

    /// Returns the relation that an ordinal of the input row belongs to.
    pub fn owner(&self, ordinal: usize) -> Option<&Relation> {
        self.relations.iter().rfind(|r| r.first <= ordinal)
    }
}

impl Merged {
    /// Returns the same merged column after `width` columns were put before its join.
    pub fn moved(mut self, width: usize) -> Merged {
        self.first += width;
        self.hides.iter_mut().for_each(|n| *n += width);
        self.expr.walk_mut(&mut |e| {
            if let Expr::Column(n) = e {
                *n += width;
            }
        });
        self
    }

    /// Returns whether this column merges, among others, all columns that `other` merges, under the same
    /// name.
    pub fn replaces(&self, other: &Merged) -> bool {
        self.name == other.name && other.hides.iter().all(|n| self.hides.contains(n))
    }
}

fn only(mut fits: impl Iterator<Item = ColumnMatch>) -> ColumnMatch {
    match (fits.next(), fits.next()) {
        (None, _) => ColumnMatch::Nothing,
        (Some(one), None) => one,
        (Some(_), Some(_)) => ColumnMatch::Several,
    }
}

impl Relation {
    /// Returns a relation that has no name and, so far, no columns.
    pub fn unnamed() -> Relation {
        Relation {
            alias: String::new(),
            hidden: None,
            columns: Vec::new(),
            origins: Vec::new(),
            has_records: false,
            key: Vec::new(),
            first: 0,
        }
    }

    /// Returns the same relation, whose columns have the columns of this table or view as origins.
    #[must_use]
    pub fn showing(mut self, relation: Oid) -> Relation {
        let numbers = (1..).take(self.columns.len());
        self.origins = numbers.map(|number| Some(Origin { relation, number })).collect();
        self
    }

    /// Returns the columns of this name: their ordinals in the input row, and their types. A query in FROM
    /// may have several columns of one name.
    fn columns_of(&self, name: &str) -> impl Iterator<Item = (usize, Typed)> {
        let columns = self.columns.iter().zip(self.first..);
        columns.filter(move |((n, _), _)| n == name).map(|((_, t), ordinal)| (ordinal, *t))
    }

    /// Returns whether several columns of the relation have this name.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        self.columns_of(name).nth(1).is_some()
    }
}

impl Grouping {
    /// Returns the number of slots of a group: its keys, its aggregates, and the number of its grouping set
    /// if there are grouping sets.
    pub fn width(&self) -> usize {
        self.keys.len() + self.calls.len() + usize::from(!self.sets.is_empty())
    }

    /// Returns the slot of a column that is a group key. A column that the keys determine becomes a group
    /// key.
    pub fn key_of_column(&mut self, column: usize, t: Typed) -> Option<usize> {
        let is_it = |b: &Bound| matches!(b.expr, Expr::Column(n) if n == column);
        if let Some(slot) = self.keys.iter().position(|(_, b)| is_it(b)) {
            return Some(slot);
        }
        if !self.keyed.iter().any(|r| r.contains(&column)) {
            return None;
        }
        let bound = Bound { expr: Expr::Column(column), t, at: None };
        self.keys.push((ast::Expr::NULL, bound));
        Some(self.keys.len() - 1)
    }

    /// Returns the slot of a group key that is written like this expression. Constant keys are not found,
    /// because in other expressions PostgreSQL computes the constant.
    pub fn key_of(&self, written: &ast::Expr) -> Option<usize> {
        let is_it = |(slot, (e, _)): &(usize, &(ast::Expr, Bound))| {
            e == written
                && !matches!(e, ast::Expr::Value(_) | ast::Expr::Parameter(..))
                && !self.is_constant(*slot)
        };
        self.keys.iter().enumerate().find(is_it).map(|(slot, _)| slot)
    }

    /// Returns the slot of the constant key that is this item of the select list.
    pub fn constant_of_item(&self, item: usize) -> Option<usize> {
        self.constants.iter().find(|(_, of)| *of == Some(item)).map(|(slot, _)| *slot)
    }

    /// Returns the slot of a constant key that is written like this expression, and is not an item of the
    /// select list.
    pub fn constant_of(&self, written: &ast::Expr) -> Option<usize> {
        let is_it = |(slot, item): &&(usize, Option<usize>)| item.is_none() && self.keys[*slot].0 == *written;
        self.constants.iter().find(is_it).map(|(slot, _)| *slot)
    }

    fn is_constant(&self, slot: usize) -> bool {
        self.constants.iter().any(|(constant, _)| *constant == slot)
    }
}
