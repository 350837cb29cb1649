//! The scope of a query: what column names mean in it.
//!
//! Invariants
//! 1. The columns of all relations of FROM are numbered one after the other, as in the input row.
//! 2. In a grouped query, an expression outside of aggregates sees only group keys and aggregates.
//!
//! This module knows nothing about plans.

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
    /// The name that qualifies its columns.
    pub alias: String,
    /// The table's own name, if the alias hides it.
    pub hidden: Option<String>,
    /// Names and types.
    pub columns: Vec<(String, Typed)>,
    /// For each column what it shows, where that is known; perhaps fewer than there are columns.
    pub origins: Vec<Option<Origin>>,
    /// Columns that hold rows of a function stand for their fields.
    pub has_records: bool,
    /// Ordinals of the primary key within the relation; empty without one.
    pub key: Vec<usize>,
    /// Ordinal of its first column in the input row.
    pub first: usize,
}

/// A column of USING or NATURAL: one for one on each side.
#[derive(Debug, Clone)]
pub struct Merged {
    /// Its name.
    pub name: String,
    /// Its value over the joined row.
    pub expr: Expr,
    /// Its type.
    pub t: Typed,
    /// Ordinals of the columns that it stands for.
    pub hides: Vec<usize>,
    /// Ordinal of the first column of the join that it belongs to.
    pub first: usize,
}

/// What a column's name fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnMatch {
    /// No column.
    Nothing,
    /// One: its ordinal in the input row, and its type.
    Column(usize, Typed),
    /// One of the merged columns, by ordinal among these.
    Merged(usize),
    /// Several columns.
    Several,
}

/// An aggregate of a grouped query.
#[derive(Debug, Clone)]
pub struct WrittenAggregate {
    /// The call as written, by which equal ones are found.
    pub written: ast::Function,
    /// What it is bound to.
    pub call: AggCall,
}

/// Group keys and aggregates of a grouped query, collected while it is bound.
#[derive(Debug, Clone, Default)]
pub struct Grouping {
    /// GROUP BY items as written, with what they are bound to.
    pub keys: Vec<(ast::Expr, Bound)>,
    /// Aggregates in the order of their slots, which follow those of the keys.
    pub calls: Vec<WrittenAggregate>,
    /// Keys that are constants: the slot, and which item of the select list is the key.
    pub constants: Vec<(usize, Option<usize>)>,
    /// Columns of the relations whose primary keys are among the keys: these may be used freely.
    pub keyed: Vec<Range<usize>>,
    /// Sets of keys by which rows are grouped, one after the other; none if it is all of them.
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
    /// WINDOW
    pub(super) named: Vec<(String, ast::WindowSpec)>,
    /// The clause being bound, if windows may not stand in it.
    pub refused: Option<&'static str>,
}

/// The temporary slot number of the first window call. Aggregates have temporary numbers too: these count
/// down from the largest number, so the two kinds never meet.
pub const WINDOW_SLOT: usize = usize::MAX / 2;

/// Calls of a query while its outputs are bound.
#[derive(Debug, Default)]
pub struct Sets {
    /// The calls; the slot of the n-th is `SET_CALL_SLOT - n` until the width of the rows below is known. A
    /// call within another's arguments comes before it.
    pub calls: Vec<SetCall>,
    /// What is being bound, if no such call may stand in it.
    pub refused: Option<&'static str>,
}

/// The slot that stands for the first call of a function that gives a set; windows count down from twice
/// that.
pub const SET_CALL_SLOT: usize = usize::MAX / 4;

/// Names in reach.
#[derive(Debug, Default)]
pub struct Scope {
    /// The relations of FROM, in the order of their columns.
    pub relations: Vec<Relation>,
    /// Columns of USING, those of the outermost join first.
    pub merged: Vec<Merged>,
    /// Set while the items of a grouped query are bound.
    pub grouping: Option<Grouping>,
    /// Where aggregates may not stand: the clause's name for the error.
    pub no_aggregates: Option<&'static str>,
    /// Set while expressions are bound in which windows may stand.
    pub windows: Option<Windows>,
    /// Set while expressions are bound in which functions that give sets may stand.
    pub sets: Option<Sets>,
}

impl Scope {
    /// The columns of one relation, no aggregates.
    pub fn of(relation: Relation) -> Scope {
        Scope { relations: vec![relation], ..Scope::default() }
    }

    /// The column of this name, among all relations or in the one that `qualifier` names.
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

    /// Whether a column of USING stands for this one.
    pub fn is_merged(&self, ordinal: usize) -> bool {
        self.merged.iter().any(|m| m.hides.contains(&ordinal))
    }

    /// How many columns the input row has.
    pub fn width(&self) -> usize {
        self.relations.iter().map(|r| r.first + r.columns.len()).max().unwrap_or(0)
    }

    /// Names the clause in which windows may not stand, as long as it is bound.
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

    /// The relation of this name.
    pub fn relation(&self, alias: &str) -> Option<&Relation> {
        self.relations.iter().find(|r| r.alias == alias)
    }

    /// What an output of this type shows, if it is a column as it is, grouped or not.
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

    /// The relation that an ordinal of the input row belongs to.
    pub fn owner(&self, ordinal: usize) -> Option<&Relation> {
        self.relations.iter().rfind(|r| r.first <= ordinal)
    }
}

impl Merged {
    /// The same behind `width` columns more.
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

    /// Whether it is a join's column over another join's one of the same name.
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
    /// A relation that has no name and, so far, no columns.
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

    /// The same with columns that are those of this table or view.
    #[must_use]
    pub fn showing(mut self, relation: Oid) -> Relation {
        let numbers = (1..).take(self.columns.len());
        self.origins = numbers.map(|number| Some(Origin { relation, number })).collect();
        self
    }

    /// Ordinals in the input row and types of the columns of this name: a query in FROM may have several.
    fn columns_of(&self, name: &str) -> impl Iterator<Item = (usize, Typed)> {
        let columns = self.columns.iter().zip(self.first..);
        columns.filter(move |((n, _), _)| n == name).map(|((_, t), ordinal)| (ordinal, *t))
    }

    /// Whether several of its columns have this name.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        self.columns_of(name).nth(1).is_some()
    }
}

impl Grouping {
    /// How many slots a group has: keys, aggregates, perhaps the number of its set.
    pub fn width(&self) -> usize {
        self.keys.len() + self.calls.len() + usize::from(!self.sets.is_empty())
    }

    /// Slot of a column that is a group key.
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

    /// Slot of an expression that is a group key as written. A key that is a constant is no part of other
    /// expressions: PostgreSQL computes the constant there.
    pub fn key_of(&self, written: &ast::Expr) -> Option<usize> {
        let is_it = |(slot, (e, _)): &(usize, &(ast::Expr, Bound))| {
            e == written
                && !matches!(e, ast::Expr::Value(_) | ast::Expr::Parameter(..))
                && !self.is_constant(*slot)
        };
        self.keys.iter().enumerate().find(is_it).map(|(slot, _)| slot)
    }

    /// Slot of the constant that this item of the select list has as its key.
    pub fn constant_of_item(&self, item: usize) -> Option<usize> {
        self.constants.iter().find(|(_, of)| *of == Some(item)).map(|(slot, _)| *slot)
    }

    /// Slot of the constant that is a key as written, and no item of the select list.
    pub fn constant_of(&self, written: &ast::Expr) -> Option<usize> {
        let is_it = |(slot, item): &&(usize, Option<usize>)| item.is_none() && self.keys[*slot].0 == *written;
        self.constants.iter().find(is_it).map(|(slot, _)| *slot)
    }

    fn is_constant(&self, slot: usize) -> bool {
        self.constants.iter().any(|(constant, _)| *constant == slot)
    }
}
