//! Remembers what scans have found out about leaves by columns: that all snapshots see all rows of a leaf,
//! and the least and greatest values of columns that conditions have asked for. So a later scan need not look
//! at each entry of the leaf, or passes the leaf by, because its conditions rule out all rows.
//!
//! Invariants
//! 1. Facts are about a page with one LSN. Each change of a page gives it another LSN, so facts about an older
//!    state are never used.
//! 2. A leaf is *settled* for a view if all its entries were written by transactions below the view's floor,
//!    none has a delete mark, and each has its row in the columns, in the order of the entries. Then the view
//!    sees exactly these rows.
//! 3. Only settled leaves have facts. Nothing is stored on a device, so a restart begins without facts.
//! 4. There are facts about at most `STRIPES * OF_STRIPE_MAX` leaves, each about at most `SPANS_MAX` columns.
//!
//! This module does not know trees and snapshots.

use std::collections::HashMap;

use parking_lot::Mutex;
use smallvec::SmallVec;
use varve_pager::{Lsn, PageId};

use crate::ids::TxnId;
use crate::leaf_rows::LeafRows;
use crate::types::Datum;

const STRIPES: usize = 64;
/// The most leaves with facts in one stripe: as many as a hash table with 4,096 places takes.
const OF_STRIPE_MAX: usize = 3584;
/// The most columns with facts in one leaf.
const SPANS_MAX: usize = 8;
/// The most digits after the point of a bound.
const SCALE_MAX: u16 = 18;

/// A number of a column: an integer, a date, a timestamp, or a numeric value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafNumber {
    /// The number without its decimal point.
    pub unscaled: i64,
    /// The digits after the decimal point.
    pub scale: u16,
}

impl LeafNumber {
    /// The number of a value; `None` if it has another type, or does not fit.
    pub fn of(value: &Datum<'_>) -> Option<LeafNumber> {
        let (unscaled, scale) = match value {
            Datum::Int2(v) => (i64::from(*v), 0),
            Datum::Int4(v) | Datum::Date(v) => (i64::from(*v), 0),
            Datum::Int8(v) | Datum::Timestamp(v) => (*v, 0),
            Datum::Numeric(n) => n.to_unscaled()?,
            _ => return None,
        };
        let number = LeafNumber { unscaled, scale };
        number.has_bounds().then_some(number)
    }

    /// Whether the number can be a bound. Numbers with many digits after the point cannot.
    pub const fn has_bounds(self) -> bool {
        self.scale <= SCALE_MAX
    }

    /// The number with `SCALE_MAX` digits after the point, without this point.
    fn lifted(self) -> i128 {
        i128::from(self.unscaled) * 10i128.pow(u32::from(SCALE_MAX - self.scale))
    }
}

/// A condition of a scan: the column is not NULL, and lies between these numbers, inclusively. If no value of
/// a leaf can be so, the scan may pass by the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafBounds {
    /// The ordinal of the column.
    pub column: usize,
    /// The least number; `None` if there is no lower bound.
    pub low: Option<LeafNumber>,
    /// The greatest number; `None` if there is no upper bound.
    pub high: Option<LeafNumber>,
}

/// The least and the greatest value of a column in a leaf, with the same scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    column: u16,
    scale: u16,
    low: i64,
    high: i64,
}

impl Span {
    /// The span of a column without values: its least value is above its greatest one.
    const fn empty(column: u16) -> Span {
        Span { column, scale: 0, low: i64::MAX, high: i64::MIN }
    }

    /// The span of a column of which nothing is known.
    const fn whole(column: u16) -> Span {
        Span { column, scale: 0, low: i64::MIN, high: i64::MAX }
    }

    fn of(rows: &LeafRows<'_>, column: u16) -> Span {
        let values = rows.column(usize::from(column));
        let mut span = Span::empty(column);
        for number in rows.numbers() {
            let value = values.get(*number);
            if value.is_null() {
                continue;
            }
            match LeafNumber::of(&value).and_then(|value| span.with(value)) {
                Some(wider) => span = wider,
                None => return Span::whole(column),
            }
        }
        span
    }

    /// The span with one more value. `None` if that does not fit.
    fn with(self, value: LeafNumber) -> Option<Span> {
        if self.is_empty() {
            return Some(Span { scale: value.scale, low: value.unscaled, high: value.unscaled, ..self });
        }
        let scale = self.scale.max(value.scale);
        let at_scale = |n: i64, from: u16| n.checked_mul(10i64.checked_pow(u32::from(scale - from))?);
        let value = at_scale(value.unscaled, value.scale)?;
        let [low, high] = [at_scale(self.low, self.scale)?, at_scale(self.high, self.scale)?];
        Some(Span { scale, low: low.min(value), high: high.max(value), ..self })
    }

    const fn is_empty(self) -> bool {
        self.low > self.high
    }

    fn is_outside(self, bounds: &LeafBounds) -> bool {
        let lifted = |unscaled| LeafNumber { unscaled, scale: self.scale }.lifted();
        self.is_empty()
            || bounds.low.is_some_and(|low| lifted(self.high) < low.lifted())
            || bounds.high.is_some_and(|high| lifted(self.low) > high.lifted())
    }
}

#[derive(Clone)]
struct Facts {
    lsn: Lsn,
    /// The newest transaction that wrote an entry.
    newest: TxnId,
    spans: SmallVec<[Span; 2]>,
}

impl Facts {
    fn span(&self, column: usize) -> Option<Span> {
        self.spans.iter().find(|span| usize::from(span.column) == column).copied()
    }
}

/// What is known about a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    Nothing,
    /// The leaf is settled. `needs_more`: a column with bounds has no least and greatest value yet.
    Settled { needs_more: bool },
    /// The leaf is settled, and the bounds rule out all its rows.
    RuledOut,
}

/// The facts about all leaves.
pub(crate) struct LeafFacts {
    stripes: Box<[Mutex<HashMap<PageId, Facts>>]>,
}

impl Default for LeafFacts {
    fn default() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }
}

impl LeafFacts {
    fn stripe(&self, page: PageId) -> &Mutex<HashMap<PageId, Facts>> {
        &self.stripes[page.to_u64() as usize % STRIPES]
    }

    /// What is known about a page with this LSN, for a view with this floor.
    pub(crate) fn known(&self, page: PageId, lsn: Lsn, floor: TxnId, bounds: &[LeafBounds]) -> Known {
        let stripe = self.stripe(page).lock();
        let Some(facts) = stripe.get(&page).filter(|facts| facts.lsn == lsn && facts.newest < floor) else {
            return Known::Nothing;
        };
        let mut needs_more = false;
        for bound in bounds {
            match facts.span(bound.column) {
                Some(span) if span.is_outside(bound) => return Known::RuledOut,
                Some(_) => {}
                None => needs_more = true,
            }
        }
        Known::Settled { needs_more }
    }

    /// Remembers that a page with this LSN is settled, and its least and greatest values of columns with
    /// bounds. `newest` is the newest transaction that wrote an entry; `None` if the page has facts. If they
    /// are gone, nothing is remembered.
    pub(crate) fn learn(
        &self,
        page: PageId,
        lsn: Lsn,
        newest: Option<TxnId>,
        rows: &LeafRows<'_>,
        bounds: &[LeafBounds],
    ) {
        let mut stripe = self.stripe(page).lock();
        let before = stripe.remove(&page).filter(|facts| facts.lsn == lsn);
        let Some(newest) = newest.or(before.as_ref().map(|facts| facts.newest)) else { return };
        let mut facts = before.unwrap_or(Facts { lsn, newest, spans: SmallVec::new() });
        for bound in bounds {
            if let (None, Ok(column)) = (facts.span(bound.column), u16::try_from(bound.column))
                && facts.spans.len() < SPANS_MAX
            {
                facts.spans.push(Span::of(rows, column));
            }
        }
        if stripe.len() >= OF_STRIPE_MAX {
            stripe.clear();
        }
        stripe.insert(page, facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(values: &[(i64, u16)]) -> Option<Span> {
        values.iter().try_fold(Span::empty(3), |span, (unscaled, scale)| {
            span.with(LeafNumber { unscaled: *unscaled, scale: *scale })
        })
    }

    fn bounds(low: Option<(i64, u16)>, high: Option<(i64, u16)>) -> LeafBounds {
        let number = |(unscaled, scale)| LeafNumber { unscaled, scale };
        LeafBounds { column: 3, low: low.map(number), high: high.map(number) }
    }

    #[test]
    fn a_span_takes_values_of_several_scales() {
        let mixed = span(&[(15, 1), (-2, 0), (1499, 3)]).unwrap();
        assert_eq!(mixed, Span { column: 3, scale: 3, low: -2000, high: 1500 });
        for (low, high, is_outside) in [
            (Some((15, 1)), None, false),
            (Some((1500, 3)), Some((150, 2)), false),
            (Some((1501, 3)), None, true),
            (Some((i64::MIN, 0)), Some((-2, 0)), false),
            (None, Some((-20_001, 4)), true),
            (Some((i64::MAX, 0)), None, true),
            (None, Some((i64::MIN, 18)), true),
            (None, None, false),
        ] {
            assert_eq!(mixed.is_outside(&bounds(low, high)), is_outside, "{low:?} {high:?}");
        }
    }

    #[test]
    fn a_span_without_values_rules_out_all_and_an_unknown_one_nothing() {
        assert!(Span::empty(3).is_outside(&bounds(None, None)));
        // The values would need more than 64 bits at the same scale.
        assert_eq!(span(&[(i64::MAX, 0), (1, 18)]), None);
        for edge in [i64::MIN, -1, 0, i64::MAX] {
            for scale in [0, SCALE_MAX] {
                let edge = Some((edge, scale));
                assert!(!Span::whole(3).is_outside(&bounds(edge, None)));
                assert!(!Span::whole(3).is_outside(&bounds(None, edge)));
            }
        }
    }

    #[test]
    fn a_leaf_with_facts_takes_few_bytes() {
        assert!(size_of::<(PageId, Facts)>() <= 96, "{}", size_of::<(PageId, Facts)>());
    }
}
