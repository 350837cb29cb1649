//! Lists for `x IN (...)`, `x = ANY (array)` and their negations. A long list is put into a hash table once
//! for each execution.
//!
//! Invariants
//! 1. A list is hashed only if its values are the same for all rows of the execution. The result is the same
//!    as with single comparisons.
//! 2. Each list has a number, which no other list has. A copy of an expression keeps the number of its list.
//!
//! This module does not know where an operand comes from.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use varve_engine::Datum;

use super::{Cx, Expr, Input};

/// Lists with fewer values are not hashed. Their values are compared one by one.
const HASHED_MIN: usize = 16;
/// The number of rows before the list is hashed. For one or two rows, hashing costs more than it saves.
const PLAIN_ROWS: u32 = 2;

/// The number of a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListId(u64);

/// Shows no number, because bound expressions are compared by their Debug form.
impl fmt::Debug for ListId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListId")
    }
}

impl ListId {
    /// Returns a number that no other list has.
    pub fn next() -> ListId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ListId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The items of IN.
#[derive(Debug, Clone)]
pub struct List {
    id: ListId,
    items: Box<[Expr]>,
}

impl From<Vec<Expr>> for List {
    fn from(items: Vec<Expr>) -> List {
        List { id: ListId::next(), items: items.into() }
    }
}

impl From<Box<[Expr]>> for List {
    fn from(items: Box<[Expr]>) -> List {
        List { id: ListId::next(), items }
    }
}

impl Deref for List {
    type Target = [Expr];

    fn deref(&self) -> &[Expr] {
        &self.items
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut [Expr] {
        &mut self.items
    }
}

impl<'l> IntoIterator for &'l List {
    type Item = &'l Expr;
    type IntoIter = std::slice::Iter<'l, Expr>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// The values of a list.
#[derive(Debug, Default)]
struct Members {
    /// Integers of any width.
    words: HashSet<i64>,
    /// The keys of all other values.
    keys: HashSet<Box<[u8]>>,
    has_null: bool,
}

impl Members {
    fn add(&mut self, value: &Datum<'_>) {
        match (value, value.as_integer()) {
            (Datum::Null, _) => self.has_null = true,
            (Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_), Some(word)) => {
                self.words.insert(word);
            }
            _ => {
                let mut key = Vec::new();
                crate::value_bytes::push_key(&mut key, value);
                self.keys.insert(key.into());
            }
        }
    }

    /// Returns whether one of the values equals `value`, which is not NULL. Returns `None` if no value is
    /// equal, but the list has a NULL.
    fn find(&self, value: &Datum<'_>, key: &mut Vec<u8>) -> Option<bool> {
        let found = match (value, value.as_integer()) {
            (Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_), Some(word)) => self.words.contains(&word),
            _ => {
                key.clear();
                crate::value_bytes::push_key(key, value);
                self.keys.contains(key.as_slice())
            }
        };
        if found { Some(true) } else { (!self.has_null).then_some(false) }
    }
}

/// The state of a list during an execution.
#[derive(Debug)]
enum Known {
    /// The list was searched for this number of rows.
    Plain(u32),
    /// The list cannot be hashed, because its values differ from row to row, because one of them fails, or
    /// because it has few values.
    Varies,
    Hashed(Members),
}

/// The lists that an execution has hashed.
#[derive(Debug, Default)]
pub struct Lists {
    known: RefCell<HashMap<ListId, Known>>,
    key: RefCell<Vec<u8>>,
}

/// The result of a search in hashed values: whether one of them equals the operand. It is `None` for NULL.
type Answer = Option<bool>;

impl Lists {
    /// Searches in hashed values. Returns `None` if the values must be compared one by one. `gather` is
    /// called when the list is hashed. It adds the values, and returns whether they are the same for all
    /// rows.
    fn find(
        &self,
        id: ListId,
        value: &Datum<'_>,
        gather: impl FnOnce(&mut dyn FnMut(Datum<'_>)) -> bool,
    ) -> Option<Answer> {
        let mut known = self.known.borrow_mut();
        let state = known.entry(id).or_insert(Known::Plain(0));
        if let Known::Plain(rows) = state {
            *rows += 1;
            if *rows <= PLAIN_ROWS {
                return None;
            }
            let mut members = Members::default();
            let is_steady = gather(&mut |value| members.add(&value));
            *state = if is_steady { Known::Hashed(members) } else { Known::Varies };
        }
        match state {
            Known::Hashed(members) => Some(members.find(value, &mut self.key.borrow_mut())),
            _ => None,
        }
    }
}

impl List {
    /// Looks a value up in a list that is hashed. Returns `None` if the items must be compared one by one.
    pub(super) fn find<'a>(&'a self, value: &Datum<'_>, cx: &Cx<'a>) -> Option<Answer> {
        if self.len() < HASHED_MIN {
            return None;
        }
        cx.env.lists.find(self.id, value, |add| {
            self.iter().all(|item| {
                // If an item fails, this is an error only if no earlier item is equal. So such a list is not
                // hashed.
                let constant = if item.is_constant() { item.eval(&Input::None, cx).ok() } else { None };
                constant.is_some_and(|value| {
                    add(value);
                    true
                })
            })
        })
    }
}

impl ListId {
    /// Looks a value up in an array that is hashed. Returns `None` if the array must be evaluated and
    /// searched instead.
    pub(super) fn find<'a>(self, value: &Datum<'_>, array: &'a Expr, cx: &Cx<'a>) -> Option<Answer> {
        cx.env.lists.find(self, value, |add| {
            match array.is_constant().then(|| array.eval(&Input::None, cx)) {
                Some(Ok(Datum::Array(elements))) if elements.iter().nth(HASHED_MIN - 1).is_some() => {
                    elements.iter().for_each(add);
                    true
                }
                _ => false,
            }
        })
    }
}
