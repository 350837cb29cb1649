//! Chooses the access path of a table: by primary key, by an index, or a scan of the whole table.
//!
//! The shape of the conditions decides which path is taken. Equality on all columns of a unique key is best.
//! Then follow equality on most leading columns of a key, ranges with both bounds, and ranges with one bound.
//!
//! Invariants
//! 1. The ranges of a path contain every row that satisfies the conditions from which they are made. After
//!    merging, they contain no row twice.
//! 2. A condition leaves the filter only if the path implies it.
//!
//! This module does not know statistics.

use varve_engine::{KeyPart, ScanIndex, TableDef};

use crate::derived::Keys;
use crate::eval::{CmpOp, Expr};
use crate::plan::{Access, KeyRange};
use crate::planted::planted;

/// The most ranges that combinations of lists may have.
const RANGES_MAX: usize = 10_000;

/// Splits a condition into the conditions that AND combines.
pub fn conjuncts(condition: Expr) -> Vec<Expr> {
    let mut out = Vec::new();
    split(condition, &mut out);
    out
}

fn split(condition: Expr, out: &mut Vec<Expr>) {
    match condition {
        Expr::And(items) => items.into_vec().into_iter().for_each(|i| split(i, out)),
        other => out.push(other),
    }
}

/// Combines the conditions by AND.
pub fn joined(mut conditions: Vec<Expr>) -> Option<Expr> {
    match conditions.len() {
        0 => None,
        1 => conditions.pop(),
        _ => Some(Expr::And(conditions.into())),
    }
}

/// The order in which the caller wants the rows: column ordinals and direction.
#[derive(Debug, Clone, Default)]
pub struct WantedOrder {
    /// Columns, first one first.
    pub columns: Vec<usize>,
    /// Whether all columns are descending.
    pub descending: bool,
}

/// The chosen path.
#[derive(Debug)]
pub struct Choice {
    /// The path.
    pub access: Access,
    /// The conditions that the path implies.
    pub covered: Vec<bool>,
    /// Whether the path returns the rows in the wanted order.
    pub ordered: bool,
}

/// One index as a candidate.
struct Candidate {
    index: ScanIndex,
    columns: Vec<usize>,
    /// Whether equality on all columns finds at most one row.
    unique: bool,
    /// Columns that follow in the key (the primary key after the columns of a secondary index).
    tail: Vec<usize>,
    /// The conditions, if the index is over expressions. In them, these expressions are columns after those
    /// of the table.
    rewritten: Option<Vec<Expr>>,
}

/// The ranges of an index for the conditions.
struct Match {
    ranges: Vec<KeyRange>,
    covered: Vec<bool>,
    score: u32,
}

/// Chooses the path into `table` for these conditions.
pub fn choose(table: &TableDef, conditions: &[Expr], order: Option<&WantedOrder>, limited: bool) -> Choice {
    let mut best: Option<(u32, Choice)> = None;
    let derived = derived_candidates(table, conditions);
    for candidate in candidates(table).into_iter().chain(derived) {
        let Some(found) = match_index(&candidate, conditions) else { continue };
        let ordered = order.is_some_and(|o| delivers(&candidate, &found.ranges, o));
        let bonus =
            u32::from(ordered && limited) * 4 + u32::from(matches!(candidate.index, ScanIndex::Primary));
        let score = found.score + bonus;
        if best.as_ref().is_none_or(|(s, _)| score > *s) {
            best = Some((score, choice(candidate, found, ordered)));
        }
    }
    match best {
        Some((_, choice)) => choice,
        None => whole_table(table, conditions, order, limited),
    }
}

fn candidates(table: &TableDef) -> Vec<Candidate> {
    let key = table.key_columns().to_vec();
    let mut out = Vec::new();
    if !key.is_empty() {
        out.push(Candidate {
            index: ScanIndex::Primary,
            columns: key.clone(),
            unique: true,
            tail: Vec::new(),
            rewritten: None,
        });
    }
    out.extend(table.plain_indexes().map(|i| Candidate {
        index: ScanIndex::Secondary(i.id),
        columns: i.columns.clone(),
        unique: i.unique,
        tail: key.clone(),
        rewritten: None,
    }));
    out
}

/// Indexes over expressions, and those whose condition the statement's conditions imply.
fn derived_candidates(table: &TableDef, conditions: &[Expr]) -> Vec<Candidate> {
    let mut out = Vec::new();
    let mut behind = table.columns.len();
    for (index, derived) in table.derived_indexes() {
        let first = behind;
        behind += derived.expressions().count();
        let Ok(keys) = Keys::of(table, derived) else { continue };
        if !keys.predicate.is_none_or(|predicate| implied(predicate, conditions)) {
            continue;
        }
        let mut next = first;
        let (mut columns, mut expressions) = (Vec::with_capacity(keys.parts.len()), Vec::new());
        for (key, part) in derived.keys.iter().zip(keys.parts) {
            match key {
                KeyPart::Column(ordinal) => columns.push(*ordinal),
                KeyPart::Expression { .. } => {
                    columns.push(next);
                    expressions.push((shape(&part), next));
                    next += 1;
                }
            }
        }
        out.push(Candidate {
            index: ScanIndex::Secondary(index.id),
            columns,
            unique: index.unique,
            tail: Vec::new(),
            rewritten: Some(conditions.iter().map(|c| rewritten(c, &expressions)).collect()),
        });
    }
    out
}

/// Returns the condition with the expressions of an index replaced by columns.
fn rewritten(condition: &Expr, expressions: &[(String, usize)]) -> Expr {
    let mut out = condition.clone();
    out.walk_mut(&mut |e| {
        if let Some((_, ordinal)) = expressions.iter().find(|(text, _)| *text == shape(e)) {
            *e = Expr::Column(*ordinal);
        }
    });
    out
}

/// Returns a text that identifies a bound expression. Bound expressions have no positions, so equal
/// expressions have equal texts.
fn shape(e: &Expr) -> String {
    format!("{e:?}")
}

/// Returns whether the conditions imply the predicate. Only simple cases are recognized.
fn implied(predicate: Expr, conditions: &[Expr]) -> bool {
    conjuncts(predicate).iter().all(|wanted| conditions.iter().any(|given| implies(given, wanted)))
}

fn implies(given: &Expr, wanted: &Expr) -> bool {
    if shape(given) == shape(wanted) {
        return true;
    }
    match wanted {
        Expr::IsNull(operand, true) => match operand.as_ref() {
            Expr::Column(column) => asks_for_value(given, *column),
            _ => false,
        },
        _ => match (bounding(given), bounding(wanted)) {
            (Some(given), Some(wanted)) => given.is_within(&wanted),
            _ => false,
        },
    }
}

/// Returns whether a condition is never true if the column is NULL.
fn asks_for_value(condition: &Expr, column: usize) -> bool {
    let is_it = |e: &Expr| matches!(e, Expr::Column(c) if *c == column);
    match condition {
        Expr::Compare(_, sides) | Expr::Quantified(_, false, sides, _) => is_it(&sides.0) || is_it(&sides.1),
        Expr::InList(operand, _, false) => is_it(operand),
        Expr::Like(like) => is_it(&like.subject),
        _ => false,
    }
}

fn choice(candidate: Candidate, found: Match, ordered: bool) -> Choice {
    let whole_key = |r: &KeyRange| r.equal.len() == candidate.columns.len();
    let access =
        if candidate.index == ScanIndex::Primary && is_single(&found.ranges) && whole_key(&found.ranges[0]) {
            Access::Point(found.ranges[0].equal.clone().into())
        } else {
            Access::Ranges {
                index: candidate.index,
                columns: candidate.columns.into(),
                ranges: found.ranges.into(),
            }
        };
    Choice { access, covered: found.covered, ordered }
}

/// Returns the path if no condition can use an index. An index may still return the wanted order.
fn whole_table(table: &TableDef, conditions: &[Expr], order: Option<&WantedOrder>, limited: bool) -> Choice {
    let covered = vec![false; conditions.len()];
    let everything = [KeyRange::default()];
    for candidate in candidates(table) {
        let primary = candidate.index == ScanIndex::Primary;
        let ordered = order.is_some_and(|o| delivers(&candidate, &everything, o));
        if ordered && primary {
            return Choice { access: Access::Full, covered, ordered };
        }
        if ordered && limited {
            let ranges = Box::new(everything);
            let access = Access::Ranges { index: candidate.index, columns: candidate.columns.into(), ranges };
            return Choice { access, covered, ordered };
        }
    }
    Choice { access: Access::Full, covered, ordered: false }
}

/// Returns whether a scan of these ranges in key order returns the wanted order.
fn delivers(candidate: &Candidate, ranges: &[KeyRange], order: &WantedOrder) -> bool {
    let fixed = if let [only] = ranges { only.each.unwrap_or(only.equal.len()) } else { 0 };
    let mut key = candidate.columns.iter().chain(&candidate.tail).enumerate();
    'wanted: for wanted in &order.columns {
        if candidate.columns[..fixed].contains(wanted) {
            continue;
        }
        for (at, column) in key.by_ref() {
            if column == wanted {
                continue 'wanted;
            }
            if at >= fixed {
                return false;
            }
        }
        return false;
    }
    true
}

fn match_index(candidate: &Candidate, conditions: &[Expr]) -> Option<Match> {
    let refs: Vec<&Expr> = candidate.rewritten.as_deref().unwrap_or(conditions).iter().collect();
    let mut covered = vec![false; conditions.len()];
    let ranges = ranges_for(&candidate.columns, &refs, &mut covered)?;
    let score = score(candidate, &ranges);
    Some(Match { ranges, covered, score })
}

fn score(candidate: &Candidate, ranges: &[KeyRange]) -> u32 {
    let least_equal = ranges.iter().map(|r| r.equal.len()).min().unwrap_or(0);
    let closed = ranges.iter().all(|r| r.lower.is_some() && r.upper.is_some());
    if candidate.unique && least_equal == candidate.columns.len() {
        return if is_single(ranges) { 1000 } else { 900 };
    }
    let equal = least_equal.min(20) as u32;
    match (equal, closed) {
        (0, true) => 15,
        (0, false) => 8,
        (n, _) if is_single(ranges) => 40 + n * 4 + u32::from(closed) * 2,
        (n, _) => 20 + n * 2,
    }
}

/// Returns whether there is exactly one range, regardless of the values.
fn is_single(ranges: &[KeyRange]) -> bool {
    matches!(ranges, [only] if only.each.is_none())
}

/// A condition that bounds one column.
enum Bounding<'e> {
    Equal(usize, &'e Expr),
    OneOf(usize, &'e [Expr]),
    /// Equal to one of the elements of an array.
    EachOf(usize, &'e Expr),
    Below(usize, &'e Expr, bool),
    Above(usize, &'e Expr, bool),
}

impl Bounding<'_> {
    /// Returns whether all values within this bound are within another one. Both must have a constant.
    fn is_within(&self, other: &Bounding<'_>) -> bool {
        use Bounding::{Above, Below, Equal};
        let order = |a: &Expr, b: &Expr| match (a, b) {
            (Expr::Const(a), Expr::Const(b)) if !a.is_null() && !b.is_null() => {
                let alike = std::mem::discriminant(a) == std::mem::discriminant(b);
                alike.then(|| a.as_datum().order(&b.as_datum()))
            }
            _ => None,
        };
        match (self, other) {
            (Equal(a, value), Equal(b, wanted)) => a == b && order(value, wanted).is_some_and(|o| o.is_eq()),
            (Equal(a, value), Above(b, bound, included))
            | (Above(a, value, true), Above(b, bound, included)) => {
                a == b && order(value, bound).is_some_and(|o| o.is_gt() || (o.is_eq() && *included))
            }
            (Equal(a, value), Below(b, bound, included))
            | (Below(a, value, true), Below(b, bound, included)) => {
                a == b && order(value, bound).is_some_and(|o| o.is_lt() || (o.is_eq() && *included))
            }
            (Above(a, value, false), Above(b, bound, _)) => {
                a == b && order(value, bound).is_some_and(|o| o.is_ge())
            }
            (Below(a, value, false), Below(b, bound, _)) => {
                a == b && order(value, bound).is_some_and(|o| o.is_le())
            }
            _ => false,
        }
    }
}

fn bounding(e: &Expr) -> Option<Bounding<'_>> {
    match e {
        Expr::Compare(op, sides) => match (&sides.0, &sides.1) {
            (Expr::Column(c), value) if value.is_fixed() => compared(*op, *c, value),
            (value, Expr::Column(c)) if value.is_fixed() => compared(op.mirrored(), *c, value),
            _ => None,
        },
        Expr::InList(operand, list, false) => match operand.as_ref() {
            Expr::Column(c) if list.iter().all(Expr::is_fixed) => Some(Bounding::OneOf(*c, list)),
            _ => None,
        },
        Expr::Quantified(CmpOp::Eq, false, sides, _) => match (&sides.0, &sides.1) {
            (Expr::Column(c), array) if array.is_fixed() => Some(Bounding::EachOf(*c, array)),
            _ => None,
        },
        _ => None,
    }
}

fn compared(op: CmpOp, column: usize, value: &Expr) -> Option<Bounding<'_>> {
    Some(match op {
        CmpOp::Eq => Bounding::Equal(column, value),
        CmpOp::Lt => Bounding::Below(column, value, false),
        CmpOp::Le => Bounding::Below(column, value, !planted("sql: an upper bound of an index is left out")),
        CmpOp::Gt => Bounding::Above(column, value, false),
        CmpOp::Ge => Bounding::Above(column, value, true),
        CmpOp::Ne => return None,
    })
}

/// Returns ranges over a key of these columns, or `None` if no condition bounds the first column. Marks the
/// conditions that the ranges imply.
fn ranges_for(columns: &[usize], conditions: &[&Expr], covered: &mut [bool]) -> Option<Vec<KeyRange>> {
    let mut ranges = vec![KeyRange::default()];
    let mut bounded = false;
    for (at, column) in columns.iter().enumerate() {
        if extend_equal(*column, conditions, covered, &mut ranges) {
            bounded = true;
            continue;
        }
        bounded |= extend_bounds(*column, conditions, covered, &mut ranges)
            || extend_branches(&columns[at..], conditions, covered, &mut ranges);
        break;
    }
    bounded.then_some(ranges)
}

/// Extends the ranges by equality or a list on the next column.
fn extend_equal(
    column: usize,
    conditions: &[&Expr],
    covered: &mut [bool],
    ranges: &mut Vec<KeyRange>,
) -> bool {
    for (i, condition) in conditions.iter().enumerate() {
        match bounding(condition) {
            Some(Bounding::Equal(c, value)) if c == column => {
                ranges.iter_mut().for_each(|r| r.equal.push(value.clone()));
                covered[i] = true;
                return true;
            }
            Some(Bounding::OneOf(c, list)) if c == column && ranges.len() * list.len() <= RANGES_MAX => {
                *ranges = multiply(ranges, list);
                covered[i] = true;
                return true;
            }
            Some(Bounding::EachOf(c, array))
                if c == column && ranges.iter().all(|range| range.each.is_none()) =>
            {
                for range in ranges.iter_mut() {
                    range.each = Some(range.equal.len());
                    range.equal.push(array.clone());
                }
                covered[i] = true;
                return true;
            }
            _ => {}
        }
    }
    false
}

fn multiply(ranges: &[KeyRange], list: &[Expr]) -> Vec<KeyRange> {
    let with = |range: &KeyRange, value: &Expr| {
        let mut range = range.clone();
        range.equal.push(value.clone());
        range
    };
    ranges.iter().flat_map(|r| list.iter().map(move |v| with(r, v))).collect()
}

/// Extends the ranges by the first lower and the first upper bound on the next column. Further bounds stay in
/// the filter.
fn extend_bounds(column: usize, conditions: &[&Expr], covered: &mut [bool], ranges: &mut [KeyRange]) -> bool {
    let (mut lower, mut upper) = (None, None);
    for (i, condition) in conditions.iter().enumerate() {
        let (bound, value) = match bounding(condition) {
            Some(Bounding::Above(c, value, included)) if c == column => {
                (&mut lower, (value.clone(), included))
            }
            Some(Bounding::Below(c, value, included)) if c == column => {
                (&mut upper, (value.clone(), included))
            }
            _ => continue,
        };
        if bound.is_none() {
            *bound = Some(value);
            covered[i] = true;
        }
    }
    for range in ranges.iter_mut() {
        range.lower.clone_from(&lower);
        range.upper.clone_from(&upper);
    }
    lower.is_some() || upper.is_some()
}

/// Extends the ranges by an OR of which every branch bounds the next column.
fn extend_branches(
    columns: &[usize],
    conditions: &[&Expr],
    covered: &mut [bool],
    ranges: &mut Vec<KeyRange>,
) -> bool {
    for (i, condition) in conditions.iter().enumerate() {
        let Expr::Or(branches) = condition else { continue };
        let mut implied = true;
        let mut found = Vec::new();
        let all = branches.iter().all(|branch| {
            let Some((mut more, exact)) = branch_ranges(columns, branch) else { return false };
            implied &= exact;
            found.append(&mut more);
            true
        });
        let has_each = |ranges: &[KeyRange]| ranges.iter().any(|range| range.each.is_some());
        let two_arrays = has_each(ranges) && has_each(&found);
        if !all || two_arrays || ranges.len() * found.len() > RANGES_MAX {
            continue;
        }
        *ranges = ranges.iter().flat_map(|head| found.iter().map(move |tail| chained(head, tail))).collect();
        covered[i] = implied;
        return true;
    }
    false
}

/// Ranges of one branch of an OR, and whether they imply the whole branch.
fn branch_ranges(columns: &[usize], branch: &Expr) -> Option<(Vec<KeyRange>, bool)> {
    let mut parts = Vec::new();
    flatten(branch, &mut parts);
    let mut covered = vec![false; parts.len()];
    let ranges = ranges_for(columns, &parts, &mut covered)?;
    Some((ranges, covered.iter().all(|c| *c)))
}

fn flatten<'e>(e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match e {
        Expr::And(items) => items.iter().for_each(|i| flatten(i, out)),
        other => out.push(other),
    }
}

fn chained(head: &KeyRange, tail: &KeyRange) -> KeyRange {
    let equal = head.equal.iter().chain(&tail.equal).cloned().collect();
    let each = head.each.or(tail.each.map(|place| head.equal.len() + place));
    KeyRange { equal, each, lower: tail.lower.clone(), upper: tail.upper.clone() }
}
