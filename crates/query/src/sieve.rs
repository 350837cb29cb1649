//! A sieve is a filter that checks common conditions on stored rows before their columns are decoded. The
//! conditions are comparisons of a column with a constant or another column, LIKE, IN, and ORs of these.
//!
//! Invariants
//! 1. A row passes if and only if `eval::Expr` finds that the filter is true for it. A test is never moved
//!    before a condition that can fail. If a test can fail for a row, `eval::Expr` evaluates the whole filter
//!    for this row.

use varve_engine::{
    DAY_US, Datum, LeafBounds, LeafColumn, LeafNumber, LeafRows, NumericRef, RowRef, Value, lifted,
};
use varve_sql::general::{CmpOp, Expr, Left, Like, Ty, Typed, conjuncts, joined, like_matches};

use crate::failing::may_fail;
use crate::numbers::small;
use crate::runtime_filter::keep;
use crate::vector::DAYS_MAX;

/// The filter of a scan.
#[derive(Debug, Clone)]
pub struct Sieve {
    whole: Option<Expr>,
    /// Fast tests for conditions of the filter. No condition before them can fail.
    tests: Vec<Test>,
    /// Bounds of columns. A row outside does not pass, and no test before can fail for it.
    bounds: Box<[LeafBounds]>,
    /// The conditions of the filter without a fast test.
    rest: Option<Expr>,
    /// Whether a test or a condition can fail for a row.
    can_fail: bool,
}

#[derive(Debug, Clone)]
enum Test {
    /// Compares a column with an integer, a date or a timestamp.
    Word(usize, CmpOp, i64),
    /// Compares two columns with integers, dates or timestamps.
    Words(usize, CmpOp, usize),
    /// Compares a date column with a timestamp.
    Day(usize, CmpOp, i64),
    Number(usize, CmpOp, (i64, u16)),
    Text(usize, CmpOp, Box<str>),
    /// Whether the column is one of these integers, which are sorted.
    AnyWord(usize, Box<[i64]>),
    /// Whether the column is one of these texts, which are sorted.
    AnyText(usize, Box<[Box<str>]>),
    Like(usize, Box<str>, Box<Like>),
    /// Whether all tests of one of these lists hold.
    Any(Box<[Box<[Test]>]>),
}

impl Sieve {
    /// Returns the sieve for a filter. The columns of the rows have these types.
    pub fn of(whole: Option<Expr>, types: &[Ty]) -> Sieve {
        let (mut tests, mut rest, mut held_up) = (Vec::new(), Vec::new(), false);
        for condition in whole.iter().cloned().flat_map(conjuncts) {
            match test(&condition, types) {
                Some(test) if !held_up => tests.push(test),
                _ => {
                    held_up |= may_fail(&condition);
                    rest.push(condition);
                }
            }
        }
        let can_fail = rest.iter().any(may_fail) || tests.iter().any(Test::can_fail);
        let bounds = tests.iter().take_while(|test| !test.can_fail()).filter_map(Test::bounds).collect();
        Sieve { whole, tests, bounds, rest: joined(rest), can_fail }
    }

    /// Returns bounds of columns. All rows that pass are within them, and none that is outside causes an
    /// error.
    pub fn bounds(&self) -> &[LeafBounds] {
        &self.bounds
    }

    /// Returns the filter.
    pub fn whole(&self) -> Option<&Expr> {
        self.whole.as_ref()
    }

    /// Returns whether the check of a row can end with an error.
    pub const fn can_fail(&self) -> bool {
        self.can_fail
    }

    /// Returns whether all rows pass.
    pub fn is_open(&self) -> bool {
        self.whole.is_none()
    }

    /// Runs the fast tests on a row. Returns whether the row passes, or the condition that must still be
    /// checked.
    #[inline]
    pub fn left(&self, row: &RowRef<'_>) -> Left<'_> {
        match (all(&self.tests, row), &self.rest) {
            (Some(false), _) => Left::Out,
            (Some(true), None) => Left::In,
            (Some(true), Some(rest)) => Left::If(rest),
            (None, _) => self.whole.as_ref().map_or(Left::In, Left::If),
        }
    }

    /// Runs the fast tests on rows of a leaf, each on all rows that the tests before it have left. Removes
    /// the rows that do not pass from `positions`, which are positions of `LeafRows::numbers`. Returns the
    /// condition that must still be checked on the other rows.
    pub fn sift(&self, rows: &LeafRows<'_>, positions: &mut Vec<u16>) -> Option<&Expr> {
        for test in &self.tests {
            let mut can_fail = false;
            match test.column() {
                Some(column) => {
                    let column = rows.column(column);
                    test.sift(&column, rows.numbers(), positions, &mut can_fail);
                }
                None if test.sift_pairs(rows, positions) => {}
                None => positions.retain(|position| {
                    let row = LeafRow { rows, number: rows.numbers()[usize::from(*position)] };
                    test.holds(&row).unwrap_or_else(|| {
                        can_fail = true;
                        true
                    })
                }),
            }
            if can_fail {
                return self.whole.as_ref();
            }
        }
        self.rest.as_ref()
    }
}

/// The columns that tests read.
trait Record {
    /// Returns the value of a column.
    fn get(&self, column: usize) -> Datum<'_>;
}

impl Record for RowRef<'_> {
    #[inline]
    fn get(&self, column: usize) -> Datum<'_> {
        RowRef::get(self, column)
    }
}

/// A row of a leaf by columns.
struct LeafRow<'l> {
    rows: &'l LeafRows<'l>,
    number: u16,
}

impl Record for LeafRow<'_> {
    fn get(&self, column: usize) -> Datum<'_> {
        self.rows.column(column).get(self.number)
    }
}

/// A value of the only column that a test reads.
struct OnlyValue<'v>(Datum<'v>);

impl Record for OnlyValue<'_> {
    #[inline]
    fn get(&self, _: usize) -> Datum<'_> {
        self.0
    }
}

/// Returns whether all tests hold for the row. Returns `None` if a test can fail for this row, so that the
/// whole filter must be evaluated.
#[inline]
fn all(tests: &[Test], row: &impl Record) -> Option<bool> {
    for test in tests {
        if !test.holds(row)? {
            return Some(false);
        }
    }
    Some(true)
}

fn test(condition: &Expr, types: &[Ty]) -> Option<Test> {
    match condition {
        Expr::Compare(op, sides) => compared(*op, &sides.0, &sides.1, types)
            .or_else(|| compared(op.mirrored(), &sides.1, &sides.0, types)),
        Expr::InList(operand, list, false) => {
            let Expr::Column(column) = **operand else { return None };
            any_of(column, list, types[column])
        }
        Expr::Like(like) if !like.fold_case => match (&like.subject, &like.pattern) {
            (Expr::Column(column), Expr::Const(Value::Text(pattern))) if is_text(types[*column]) => {
                let plain = like.escape.is_none_or(|c| !pattern.contains(c));
                plain.then(|| Test::Like(*column, pattern.as_str().into(), like.clone()))
            }
            _ => None,
        },
        Expr::Or(branches) => {
            let branch = |e: &Expr| -> Option<Box<[Test]>> {
                conjuncts(e.clone()).iter().map(|condition| test(condition, types)).collect()
            };
            Some(Test::Any(branches.iter().map(branch).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// Returns the test that a column is one of the constants. Returns `None` if a constant is NULL, or has an
/// unsuitable type.
fn any_of(column: usize, list: &[Expr], ty: Ty) -> Option<Test> {
    let constants = || list.iter().map(|item| if let Expr::Const(value) = item { Some(value) } else { None });
    if is_text(ty) {
        let text = |value: Option<&Value>| match value {
            Some(Value::Text(text)) => Some(text.as_str().into()),
            _ => None,
        };
        let mut texts: Box<[Box<str>]> = constants().map(text).collect::<Option<_>>()?;
        texts.sort_unstable();
        return Some(Test::AnyText(column, texts));
    }
    if !matches!(ty, Ty::Int2 | Ty::Int4 | Ty::Int8) {
        return None;
    }
    let word = |value: Option<&Value>| match value {
        Some(value @ (Value::Int2(_) | Value::Int4(_) | Value::Int8(_))) => value.as_datum().as_integer(),
        _ => None,
    };
    let mut words: Box<[i64]> = constants().map(word).collect::<Option<_>>()?;
    words.sort_unstable();
    Some(Test::AnyWord(column, words))
}

fn compared(op: CmpOp, left: &Expr, right: &Expr, types: &[Ty]) -> Option<Test> {
    let is_whole = |ty: Ty| matches!(ty, Ty::Int2 | Ty::Int4 | Ty::Int8);
    match (left, right) {
        (Expr::Column(a), Expr::Column(b)) => {
            let (s, t) = (types[*a], types[*b]);
            let alike = is_whole(s) && is_whole(t) || s == t && matches!(s, Ty::Date | Ty::Timestamp);
            alike.then_some(Test::Words(*a, op, *b))
        }
        (Expr::Column(column), Expr::Const(value)) => match (types[*column], value) {
            (ty, Value::Int2(_) | Value::Int4(_) | Value::Int8(_)) if is_whole(ty) => {
                Some(Test::Word(*column, op, value.as_datum().as_integer()?))
            }
            (Ty::Date, Value::Date(day)) => Some(Test::Word(*column, op, i64::from(*day))),
            (Ty::Timestamp, Value::Timestamp(us)) => Some(Test::Word(*column, op, *us)),
            (Ty::Numeric, Value::Numeric(n)) => Some(Test::Number(*column, op, n.as_ref().to_unscaled()?)),
            (ty, Value::Text(text)) if is_text(ty) => Some(Test::Text(*column, op, text.as_str().into())),
            _ => None,
        },
        (Expr::Cast(inner, Ty::Date, to, _), Expr::Const(Value::Timestamp(us))) => match **inner {
            Expr::Column(column) if *to == Typed::plain(Ty::Timestamp) && types[column] == Ty::Date => {
                Some(Test::Day(column, op, *us))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_text(ty: Ty) -> bool {
    matches!(ty, Ty::Text | Ty::Varchar | Ty::Char)
}

impl Test {
    /// Whether the test can fail for a row.
    fn can_fail(&self) -> bool {
        match self {
            Test::Day(..) => true,
            Test::Any(branches) => branches.iter().flatten().any(Test::can_fail),
            _ => false,
        }
    }

    /// The bounds within which the column is if the test holds.
    fn bounds(&self) -> Option<LeafBounds> {
        let whole = |unscaled: i64| Some(LeafNumber { unscaled, scale: 0 });
        let (column, op, value) = match self {
            Test::Word(column, op, value) => (*column, *op, whole(*value)?),
            Test::Number(column, op, (unscaled, scale)) => {
                let value = LeafNumber { unscaled: *unscaled, scale: *scale };
                (*column, *op, value.has_bounds().then_some(value)?)
            }
            Test::AnyWord(column, words) => {
                let (low, high) = (whole(*words.first()?), whole(*words.last()?));
                return Some(LeafBounds { column: *column, low, high });
            }
            _ => return None,
        };
        let (low, high) = match op {
            CmpOp::Eq => (Some(value), Some(value)),
            CmpOp::Lt | CmpOp::Le => (None, Some(value)),
            CmpOp::Gt | CmpOp::Ge => (Some(value), None),
            CmpOp::Ne => return None,
        };
        Some(LeafBounds { column, low, high })
    }

    /// The column, if the test reads only one.
    fn column(&self) -> Option<usize> {
        match self {
            Test::Word(column, ..) | Test::Day(column, ..) | Test::Number(column, ..) => Some(*column),
            Test::Text(column, ..) | Test::AnyWord(column, _) | Test::AnyText(column, _) => Some(*column),
            Test::Like(column, ..) => Some(*column),
            Test::Words(..) | Test::Any(_) => None,
        }
    }

    /// Keeps the rows of a leaf for which the test holds. `column` is the only one that the test reads.
    /// A row for which the test can fail is kept, and sets `can_fail`.
    fn sift(&self, column: &LeafColumn<'_>, numbers: &[u16], positions: &mut Vec<u16>, can_fail: &mut bool) {
        let is_done = match self {
            Test::Word(_, op, value) => sift_words(column, *op, *value, numbers, positions),
            Test::Number(_, op, (unscaled, scale)) => {
                let constant = LeafNumber { unscaled: *unscaled, scale: *scale };
                sift_numbers(column, *op, constant, numbers, positions)
            }
            Test::Text(_, op @ (CmpOp::Eq | CmpOp::Ne), text) => {
                sift_texts(column, std::slice::from_ref(text), *op == CmpOp::Eq, numbers, positions)
            }
            Test::AnyText(_, texts) => sift_texts(column, texts, true, numbers, positions),
            _ => false,
        };
        if is_done {
            return;
        }
        positions.retain(|position| {
            let value = column.get(numbers[usize::from(*position)]);
            self.holds(&OnlyValue(value)).unwrap_or_else(|| {
                *can_fail = true;
                true
            })
        });
    }

    /// Does the same as `sift` for a test of two columns. Returns false if it has done nothing.
    fn sift_pairs(&self, rows: &LeafRows<'_>, positions: &mut Vec<u16>) -> bool {
        let Test::Words(left, op, right) = self else { return false };
        let (left, right) = (rows.column(*left), rows.column(*right));
        let [left, right] = [left.minipage(), right.minipage()];
        let row = |position: u16| usize::from(rows.numbers()[usize::from(position)]);
        let is_pair = |row: usize| !(left.is_null(row) | right.is_null(row));
        if let (Some(a), Some(b)) = (left.fixed::<4>(), right.fixed::<4>()) {
            let order = |row: usize| i32::from_le_bytes(a[row]).cmp(&i32::from_le_bytes(b[row]));
            keep(positions, |position| op.holds(order(row(position))) & is_pair(row(position)));
        } else if let (Some(a), Some(b)) = (left.fixed::<8>(), right.fixed::<8>()) {
            let order = |row: usize| i64::from_le_bytes(a[row]).cmp(&i64::from_le_bytes(b[row]));
            keep(positions, |position| op.holds(order(row(position))) & is_pair(row(position)));
        } else {
            return false;
        }
        true
    }

    fn holds(&self, row: &impl Record) -> Option<bool> {
        Some(match self {
            Test::Word(column, op, value) => word(row.get(*column)).is_some_and(|w| op.holds(w.cmp(value))),
            Test::Words(left, op, right) => match (word(row.get(*left)), word(row.get(*right))) {
                (Some(a), Some(b)) => op.holds(a.cmp(&b)),
                _ => false,
            },
            Test::Day(column, op, us) => match row.get(*column) {
                Datum::Date(day) if u64::from(day.unsigned_abs()) <= DAYS_MAX => {
                    op.holds((i64::from(day) * DAY_US).cmp(us))
                }
                Datum::Date(_) => return None,
                _ => false,
            },
            Test::Number(column, op, value) => match row.get(*column) {
                Datum::Numeric(n) => op.holds(order(n, value.0, value.1)),
                _ => false,
            },
            Test::Text(column, op, text) => match row.get(*column) {
                Datum::Text(t) => op.holds(t.as_bytes().cmp(text.as_bytes())),
                _ => false,
            },
            Test::AnyText(column, texts) => match row.get(*column) {
                Datum::Text(t) => texts.binary_search_by(|text| text.as_ref().cmp(t)).is_ok(),
                _ => false,
            },
            Test::AnyWord(column, words) => {
                word(row.get(*column)).is_some_and(|value| words.binary_search(&value).is_ok())
            }
            Test::Like(column, pattern, like) => match row.get(*column) {
                Datum::Text(t) => like_matches(t, pattern, like.escape) == Ok(!like.negated),
                _ => false,
            },
            Test::Any(branches) => {
                for branch in branches {
                    if all(branch, row)? {
                        return Some(true);
                    }
                }
                false
            }
        })
    }
}

/// Keeps the rows whose integer, date or timestamp compares with `value` in this way. Returns false if the
/// column has values of another width.
fn sift_words(
    column: &LeafColumn<'_>,
    op: CmpOp,
    value: i64,
    numbers: &[u16],
    positions: &mut Vec<u16>,
) -> bool {
    let page = column.minipage();
    let range = WordRange::of(op, value);
    let row = |position: u16| usize::from(numbers[usize::from(position)]);
    if let Some(words) = page.fixed::<4>() {
        let holds = |row: usize| range.has(i64::from(i32::from_le_bytes(words[row]))) & !page.is_null(row);
        keep(positions, |position| holds(row(position)));
    } else if let Some(words) = page.fixed::<8>() {
        let holds = |row: usize| range.has(i64::from_le_bytes(words[row])) & !page.is_null(row);
        keep(positions, |position| holds(row(position)));
    } else if let Some(words) = page.fixed::<2>() {
        let holds = |row: usize| range.has(i64::from(i16::from_le_bytes(words[row]))) & !page.is_null(row);
        keep(positions, |position| holds(row(position)));
    } else {
        return false;
    }
    true
}

/// Keeps the rows whose numeric value compares with a constant in this way. Returns false if the column has
/// values of fixed width.
fn sift_numbers(
    column: &LeafColumn<'_>,
    op: CmpOp,
    constant: LeafNumber,
    numbers: &[u16],
    positions: &mut Vec<u16>,
) -> bool {
    let (page, LeafNumber { unscaled: value, scale }) = (column.minipage(), constant);
    if !page.is_variable() {
        return false;
    }
    // The range of unscaled values with a scale. Mostly, all values of a column have the same scale.
    let mut known = (scale, WordRange::of(op, value));
    keep(positions, |position| {
        let row = usize::from(numbers[usize::from(position)]);
        if page.is_null(row) {
            return false;
        }
        if let Some((unscaled, of_row)) = page.short(row).and_then(small) {
            if of_row == known.0 {
                return known.1.has(unscaled);
            }
            let lifted = of_row.checked_sub(scale).and_then(|by| lifted(value, by));
            if let Some(lifted) = lifted.and_then(|lifted| i64::try_from(lifted).ok()) {
                known = (of_row, WordRange::of(op, lifted));
                return known.1.has(unscaled);
            }
        }
        matches!(column.get(row as u16), Datum::Numeric(n) if op.holds(order(n, value, scale)))
    });
    true
}

/// Keeps the rows whose text is one of the sorted texts, or is none of them. Returns false if the column has
/// values of fixed width.
fn sift_texts(
    column: &LeafColumn<'_>,
    texts: &[Box<str>],
    is_one: bool,
    numbers: &[u16],
    positions: &mut Vec<u16>,
) -> bool {
    let page = column.minipage();
    if !page.is_variable() {
        return false;
    }
    keep(positions, |position| {
        let row = usize::from(numbers[usize::from(position)]);
        let bytes = page.bytes(row);
        let found = match texts {
            [only] => only.as_bytes() == bytes,
            texts => texts.binary_search_by(|text| text.as_bytes().cmp(bytes)).is_ok(),
        };
        (found == is_one) & !page.is_null(row)
    });
    true
}

/// The integers for which a comparison with a constant holds. They are those in a range, or those outside of
/// it.
#[derive(Clone, Copy)]
struct WordRange {
    low: i64,
    high: i64,
    is_outside: bool,
}

impl WordRange {
    fn of(op: CmpOp, value: i64) -> WordRange {
        let (low, high, is_outside) = match op {
            CmpOp::Eq => (value, value, false),
            CmpOp::Ne => (value, value, true),
            CmpOp::Lt => (value, i64::MAX, true),
            CmpOp::Le => (i64::MIN, value, false),
            CmpOp::Gt => (i64::MIN, value, true),
            CmpOp::Ge => (value, i64::MAX, false),
        };
        WordRange { low, high, is_outside }
    }

    #[inline]
    fn has(self, word: i64) -> bool {
        ((self.low <= word) & (word <= self.high)) != self.is_outside
    }
}

#[inline]
fn word(value: Datum<'_>) -> Option<i64> {
    match value {
        Datum::Int4(v) | Datum::Date(v) => Some(i64::from(v)),
        Datum::Int8(v) | Datum::Timestamp(v) => Some(v),
        Datum::Int2(v) => Some(i64::from(v)),
        _ => None,
    }
}

fn order(n: NumericRef<'_>, value: i64, scale: u16) -> std::cmp::Ordering {
    if let Some((v, s)) = n.to_unscaled() {
        if s == scale {
            return v.cmp(&value);
        }
        let common = s.max(scale);
        if let (Some(a), Some(b)) = (lifted(v, common - s), lifted(value, common - scale)) {
            return a.cmp(&b);
        }
    }
    n.order(varve_engine::Numeric::from_unscaled(value, scale).as_ref())
}
