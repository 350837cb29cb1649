//! Visits all nodes of an expression.
//!
//! This module does not know what the nodes mean.

use super::Expr;

/// A constant expression with at most this number of nodes is copied. A larger one is computed once.
const COPIED_NODES_MAX: usize = 8;

impl Expr {
    /// Calls `visit` for this expression and all expressions in it.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        self.children(&mut |child| child.walk(visit));
    }

    fn children(&self, each: &mut dyn FnMut(&Expr)) {
        match self {
            Expr::Const(_)
            | Expr::Param(_)
            | Expr::Column(_)
            | Expr::Slot(_)
            | Expr::Outer(_)
            | Expr::Held(_) => {}
            Expr::And(list)
            | Expr::Or(list)
            | Expr::Coalesce(list)
            | Expr::Extreme(list, _)
            | Expr::Array(_, list)
            | Expr::Call(_, list)
            | Expr::Subquery(list, _) => {
                list.iter().for_each(each);
            }
            Expr::Not(e) | Expr::IsNull(e, _) | Expr::IsBool(e, ..) | Expr::Negate(_, e) => each(e),
            Expr::Cast(e, ..) | Expr::Pad(e, _) => each(e),
            Expr::Compare(_, sides)
            | Expr::Distinct(sides, _)
            | Expr::Arith(_, _, sides)
            | Expr::Quantified(_, _, sides, _)
            | Expr::Concat(sides) => {
                each(&sides.0);
                each(&sides.1);
            }
            Expr::InList(e, list, _) => {
                each(e);
                list.iter().for_each(each);
            }
            Expr::Let(list, e) => {
                each(e);
                list.iter().for_each(each);
            }
            Expr::Like(like) => {
                each(&like.subject);
                each(&like.pattern);
            }
            Expr::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    each(condition);
                    each(result);
                }
                each(otherwise);
            }
        }
    }

    /// Calls `change` for this expression and all expressions in it, parents first.
    pub fn walk_mut(&mut self, change: &mut dyn FnMut(&mut Expr)) {
        change(self);
        self.children_mut(&mut |child| child.walk_mut(change));
    }

    /// Calls `each` for the direct operands of this expression.
    pub fn children_mut(&mut self, each: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Const(_)
            | Expr::Param(_)
            | Expr::Column(_)
            | Expr::Slot(_)
            | Expr::Outer(_)
            | Expr::Held(_) => {}
            Expr::And(list)
            | Expr::Or(list)
            | Expr::Coalesce(list)
            | Expr::Extreme(list, _)
            | Expr::Array(_, list)
            | Expr::Call(_, list)
            | Expr::Subquery(list, _) => {
                list.iter_mut().for_each(each);
            }
            Expr::Not(e) | Expr::IsNull(e, _) | Expr::IsBool(e, ..) | Expr::Negate(_, e) => each(e),
            Expr::Cast(e, ..) | Expr::Pad(e, _) => each(e),
            Expr::Compare(_, sides)
            | Expr::Distinct(sides, _)
            | Expr::Arith(_, _, sides)
            | Expr::Quantified(_, _, sides, _)
            | Expr::Concat(sides) => {
                each(&mut sides.0);
                each(&mut sides.1);
            }
            Expr::InList(e, list, _) => {
                each(e);
                list.iter_mut().for_each(each);
            }
            Expr::Let(list, e) => {
                each(e);
                list.iter_mut().for_each(each);
            }
            Expr::Like(like) => {
                each(&mut like.subject);
                each(&mut like.pattern);
            }
            Expr::Case(branches, otherwise) => {
                for (condition, result) in branches.iter_mut() {
                    each(condition);
                    each(result);
                }
                each(otherwise);
            }
        }
    }

    /// Returns whether the value is the same for every row of one statement. The expression then has no
    /// column, no slot, no `Expr::Held`, no subquery and no volatile function.
    pub fn is_constant(&self) -> bool {
        let mut constant = self.is_fixed();
        self.walk(&mut |e| constant &= !matches!(e, Expr::Slot(_)));
        constant
    }

    /// Returns whether the value is the same for every row of one scan. It may use slots, because their
    /// values are computed before the scan.
    pub fn is_fixed(&self) -> bool {
        let mut fixed = true;
        self.walk(&mut |e| match e {
            Expr::Column(_) | Expr::Held(_) | Expr::Subquery(..) => fixed = false,
            Expr::Call(f, _) if f.volatile => fixed = false,
            _ => {}
        });
        fixed
    }

    /// Adds the columns that the expression reads. Each column is added once.
    pub fn add_columns(&self, columns: &mut Vec<usize>) {
        self.walk(&mut |e| match e {
            Expr::Column(column) if !columns.contains(column) => columns.push(*column),
            _ => {}
        });
    }

    /// Returns whether the expression reads columns.
    pub fn reads_columns(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Column(_)));
        found
    }

    /// Returns whether the expression uses values of an outer query.
    pub fn reads_outer(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Outer(_)));
        found
    }

    /// Returns whether the expression contains a subquery.
    pub fn has_subquery(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Subquery(..)));
        found
    }

    /// Returns the number of values that the surrounding `Let` must have for this expression.
    pub fn held_count(&self) -> usize {
        match self {
            Expr::Held(n) => n + 1,
            Expr::Let(values, _) => values.iter().map(Expr::held_count).max().unwrap_or(0),
            other => {
                let mut most = 0;
                other.children(&mut |child| most = most.max(child.held_count()));
                most
            }
        }
    }

    /// Returns whether two evaluations for the same row may have different values.
    pub fn is_volatile(&self) -> bool {
        let mut volatile = false;
        self.walk(&mut |e| volatile |= matches!(e, Expr::Call(f, _) if f.volatile));
        volatile
    }

    /// Returns whether evaluating the expression several times costs no more than computing it once and
    /// storing the value.
    pub fn is_cheap(&self) -> bool {
        let mut nodes = 0;
        self.walk(&mut |_| nodes += 1);
        nodes == 1 && !matches!(self, Expr::Call(..) | Expr::Subquery(..))
            || nodes <= COPIED_NODES_MAX && self.is_constant()
    }
}
