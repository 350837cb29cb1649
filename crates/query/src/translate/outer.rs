//! Translates joins with subqueries in their conditions, and FROM items that use values of an outer query.
//!
//! Invariants
//! 1. A subquery in a join's condition may read one side of the join. Then it is computed for the rows of
//!    that side, before the join. If it reads both sides, it is computed for pairs of rows. To form the
//!    pairs, `Apply` runs one side of the join for each row of the other side. In an outer join, the other
//!    side is the side that keeps all its rows.

use datafusion::common::Result;
use varve_sql::general::{Expr, Join, JoinKind, Lateral, Source, SqlError, Ty, Typed, Unnest};

use super::{Part, Translator, shown};
use crate::apply::{Answer, Window};
use crate::error::wrapped;
use crate::rows::Rows;
use crate::translate::subqueries::Ran;

/// The columns of the right side are numbered from here on, as long as the number of columns of the left side
/// is unknown.
const RIGHT: usize = usize::MAX / 4;

/// The two inputs of a join.
struct Sides {
    left: Part,
    right: Part,
}

impl Translator<'_> {
    /// Translates a join.
    pub(super) fn join(&mut self, join: &Join) -> Result<Part> {
        let left = self.source(&join.left)?;
        let right = match &join.lateral {
            Some(lateral) if lateral.given.iter().any(Expr::reads_columns) => {
                let on = self.owned(&join.on);
                return self.lateral(left, &join.right, join.kind == JoinKind::Left, on, lateral);
            }
            Some(lateral) => self.given_rows(&join.right, lateral)?,
            None => self.source(&join.right)?,
        };
        let (queries, on): (Vec<Expr>, Vec<Expr>) =
            self.owned(&join.on).into_iter().partition(Expr::has_subquery);
        if queries.is_empty() {
            return self.joined(join.kind, left, right, on);
        }
        if join.kind == JoinKind::Inner {
            let joined = self.joined(join.kind, left, right, on)?;
            return self.filtered(joined, queries);
        }
        let width = left.columns.len();
        if !queries.iter().all(|e| asks_one_side(e, width)) {
            return self.joined_by_pairs(join, left, right, self.owned(&join.on));
        }
        self.joined_by_answers(join.kind, left, right, [on, queries].concat())
    }

    /// Translates a join with subqueries that each read only one side.
    fn joined_by_answers(
        &mut self,
        kind: JoinKind,
        left: Part,
        right: Part,
        mut on: Vec<Expr>,
    ) -> Result<Part> {
        let widths = (left.columns.len(), right.columns.len());
        let mut sides = Sides { left, right };
        for e in &mut on {
            e.walk_mut(&mut |e| {
                if let Expr::Column(n) = e
                    && *n >= widths.0
                {
                    *n = *n - widths.0 + RIGHT;
                }
            });
            self.answered_beside(&mut sides, e)?;
        }
        let Sides { left, right } = sides;
        let left_width = left.columns.len();
        for e in &mut on {
            e.walk_mut(&mut |e| {
                if let Expr::Column(n) = e
                    && *n >= RIGHT
                {
                    *n = *n - RIGHT + left_width;
                }
            });
        }
        let mut part = self.joined(kind, left, right, on)?;
        part.columns.truncate(left_width + widths.1);
        part.columns.drain(widths.0..left_width);
        shown(part, widths.0 + widths.1)
    }

    /// Computes the subqueries of an expression on the side that each of them reads.
    fn answered_beside(&mut self, sides: &mut Sides, e: &mut Expr) -> Result<()> {
        if let Expr::Subquery(given, _) = e {
            let is_right = given.iter().any(|e| reads(e, &|n| n >= RIGHT));
            let moved = |e: &mut Expr, from: usize, to: usize| {
                e.walk_mut(&mut |e| {
                    if let Expr::Column(n) = e {
                        *n = *n - from + to;
                    }
                });
            };
            if is_right {
                moved(e, RIGHT, 0);
                sides.right = self.applied(sides.right.clone(), std::slice::from_mut(e))?;
                moved(e, 0, RIGHT);
            } else {
                sides.left = self.applied(sides.left.clone(), std::slice::from_mut(e))?;
            }
            return Ok(());
        }
        let mut state = Ok(());
        e.children_mut(&mut |child| {
            if state.is_ok() {
                state = self.answered_beside(sides, child);
            }
        });
        state
    }

    /// Translates an outer join with a subquery that reads both sides.
    fn joined_by_pairs(&mut self, join: &Join, left: Part, right: Part, mut on: Vec<Expr>) -> Result<Part> {
        let nothing = Lateral { given: Box::default(), types: Box::default() };
        let widths = (left.columns.len(), right.columns.len());
        if join.lateral.is_some() || join.kind == JoinKind::Full {
            let message = "a subquery that reads both sides in the condition of this outer join";
            return Err(wrapped(SqlError::unsupported(message)));
        }
        if join.kind == JoinKind::Left {
            return self.lateral(left, &join.right, true, on, &nothing);
        }
        // The right side keeps all its rows. So the sides are exchanged for the join, and the columns are put
        // back into their order after it.
        for e in &mut on {
            e.walk_mut(&mut |e| {
                if let Expr::Column(n) = e {
                    *n = if *n < widths.0 { *n + widths.1 } else { *n - widths.0 };
                }
            });
        }
        let mut part = self.lateral(right, &join.left, true, on, &nothing)?;
        part.columns.rotate_left(widths.1);
        shown(part, widths.0 + widths.1)
    }

    /// Translates a source that is given values of an outer query, but no values of other FROM items.
    fn given_rows(&mut self, source: &Source, lateral: &Lateral) -> Result<Part> {
        let given = self.owned(&lateral.given);
        let nothing = self.source(&Source::Nothing)?;
        self.run_once(nothing, given, &lateral.types, source)
    }

    /// Translates a source that runs once, for the only row of `part`. This row gives it the values.
    fn run_once(&mut self, part: Part, given: Vec<Expr>, types: &[Typed], source: &Source) -> Result<Part> {
        let mut inner = self.nested(types.iter().map(|t| t.ty));
        let plan = inner.source(source)?;
        let around = inner.around.clone();
        let (answer, window) = (Answer::Rows { outer: false }, Window::default());
        let ran = Ran { plan, around, types, answer, members: Vec::new(), varies: true, window, guard: None };
        let width = part.columns.len();
        let mut part = self.apply(part, given, ran)?;
        part.columns.drain(..width);
        let width = part.columns.len();
        shown(part, width)
    }

    /// Translates unnest with arrays that are computed by subqueries.
    pub(super) fn unnested_late(&mut self, unnest: &Unnest) -> Result<Part> {
        let types: Option<Vec<Ty>> = unnest.arrays.iter().map(|e| self.type_of(e)).collect();
        let types = types.ok_or_else(|| wrapped(SqlError::unsupported("a subquery here")))?;
        self.with_arguments(&unnest.arrays, types, |arguments| {
            let rows = Unnest { arrays: arguments.into(), ..unnest.clone() };
            (Rows::Unnest(rows), unnest.types.to_vec())
        })
    }

    /// Translates generate_series with arguments that are computed by subqueries.
    pub(super) fn series_late(&mut self, bounds: &[Expr; 3], ty: Ty) -> Result<Part> {
        self.with_arguments(bounds, vec![ty; 3], |arguments| {
            let [first, last, step] =
                <[Expr; 3]>::try_from(arguments).unwrap_or([Expr::NULL, Expr::NULL, Expr::NULL]);
            (Rows::Series(Box::new([first, last, step]), ty), vec![ty])
        })
    }

    fn type_of(&self, e: &Expr) -> Option<Ty> {
        self.own(e).type_in(&|_| Ty::Unknown, &|n| self.around.param_type(n))
    }

    /// Translates a function that returns rows, and whose arguments are computed first.
    fn with_arguments(
        &mut self,
        arguments: &[Expr],
        types: Vec<Ty>,
        rows: impl FnOnce(Vec<Expr>) -> (Rows, Vec<Ty>),
    ) -> Result<Part> {
        let mut values = self.owned(arguments);
        let nothing = self.source(&Source::Nothing)?;
        let part = self.applied(nothing, &mut values)?;
        let part = self.computed_columns(part, values.into_iter().zip(types.iter().copied()).collect())?;
        let typed: Vec<Typed> = types.iter().map(|t| Typed::plain(*t)).collect();
        let mut inner = self.nested(types.into_iter());
        let first = inner.around.statement_params();
        let (rows, columns) = rows((0..typed.len()).map(|n| Expr::Param(first + n)).collect());
        let plan = inner.rows(rows, columns)?;
        let around = inner.around.clone();
        let (answer, window) = (Answer::Rows { outer: false }, Window::default());
        let ran = Ran {
            plan,
            around,
            types: &typed,
            answer,
            members: Vec::new(),
            varies: true,
            window,
            guard: None,
        };
        let given = (0..typed.len()).map(Expr::Column).collect();
        let mut part = self.apply(part, given, ran)?;
        part.columns.drain(..typed.len());
        let width = part.columns.len();
        shown(part, width)
    }
}

fn reads(e: &Expr, wanted: &dyn Fn(usize) -> bool) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Column(n) if wanted(*n)));
    found
}

/// Returns whether each subquery of the expression reads at most one side.
fn asks_one_side(e: &Expr, width: usize) -> bool {
    let mut one = true;
    e.walk(&mut |e| {
        if let Expr::Subquery(given, _) = e {
            let held = |e: &Expr| {
                let mut found = false;
                e.walk(&mut |e| found |= matches!(e, Expr::Held(_)));
                found
            };
            let both = given.iter().any(|e| reads(e, &|n| n < width))
                && given.iter().any(|e| reads(e, &|n| n >= width));
            one &= !both && !given.iter().any(held);
        }
    });
    one
}
