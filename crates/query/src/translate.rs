//! From a bound query to DataFusion's logical plan.
//!
//! Invariants
//! 1. Every column has a name of its own in the whole plan; what names meant has been settled by the binder.
//! 2. DataFusion compares, groups and sorts only what `comparable` gave: values that it orders as PostgreSQL does, or keys.
//! 3. A condition that may fail is not looked at for a row for which a condition written before it, over the same tables
//!    or fewer, does not hold. (PostgreSQL promises as much: conditions of one table are checked in their order.)
//!
//! Does not know: how plans run.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{Column, JoinType, Result, TableReference};
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, LogicalPlanBuilder, lit};
use parking_lot::Mutex;
use varve_engine::{Reader, Table};
use varve_sql::general::{
    AggCall, Aggregate, Around, CmpOp, Expr, Join, JoinKind, Output, Query, Select, SortKey, Source,
    SqlError, SystemTable, Ty, joined,
};

use crate::aggregate::{Fold, function};
use crate::cells::{CellsBuilder, data_type, is_native};
use crate::computed::{Computed, comparable};
use crate::error::wrapped;
use crate::table::{SnapshotTable, column_name, column_types};

/// A column of an input and its type.
type Typing = (Column, Ty);

/// Part of a plan, with its columns in the binder's order.
struct Part {
    plan: LogicalPlanBuilder,
    columns: Vec<Typing>,
}

/// Makes one plan.
pub struct Translator<'q> {
    tables: std::slice::Iter<'q, Arc<Table>>,
    reader: Arc<Mutex<Reader>>,
    around: Arc<Around>,
    names: usize,
}

/// The plan of a query.
pub fn plan(query: &Query<'_>, reader: Arc<Mutex<Reader>>) -> Result<LogicalPlan> {
    let mut translator =
        Translator { tables: query.tables.iter(), reader, around: query.around.clone(), names: 0 };
    translator.select(query.select)?.plan.build()
}

fn as_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Translator<'_> {
    /// A name that no other column or relation of the plan has.
    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn select(&mut self, select: &Select) -> Result<Part> {
        let mut part = self.source(&select.source)?;
        let conditions = select.filter.iter().cloned().flat_map(varve_sql::general::conjuncts).collect();
        part = self.filtered(part, conditions)?;
        if let Some(aggregate) = &select.aggregate {
            part = self.aggregated(part, aggregate)?;
        }
        part = self.projected(part, &select.outputs)?;
        if select.distinct {
            part = self.distinct(part)?;
        }
        part = sorted(part, &select.order)?;
        let (skip, take) = self.around.window(select).map_err(wrapped)?;
        if skip > 0 || take.is_some() {
            part.plan = part.plan.limit(as_usize(skip), take.map(as_usize))?;
        }
        shown(part, select.visible)
    }

    fn source(&mut self, source: &Source) -> Result<Part> {
        match source {
            Source::Table(_) => self.table(),
            Source::Join(join) => self.join(join),
            Source::Query(select) => self.select(select),
            Source::System(table) => self.system(table),
            _ => Err(wrapped(SqlError::unsupported("a join with what is no table"))),
        }
    }

    fn table(&mut self) -> Result<Part> {
        let Some(table) = self.tables.next() else {
            return Err(wrapped(SqlError::internal("a query with more tables than were opened")));
        };
        let relation = self.name();
        let provider = SnapshotTable::new(table.clone(), self.reader.clone(), self.around.clone());
        let source = provider_as_source(Arc::new(provider));
        let plan = LogicalPlanBuilder::scan(relation.as_str(), source, None)?;
        let column = |(n, t): (usize, Ty)| (Column::new(Some(relation.as_str()), column_name(n)), t);
        Ok(Part { plan, columns: column_types(table).into_iter().enumerate().map(column).collect() })
    }

    /// A system table, whose rows are made now.
    fn system(&mut self, table: &SystemTable) -> Result<Part> {
        let relation = self.name();
        let types = || table.columns.iter().map(|(_, ty, _)| *ty);
        let mut cells: Vec<CellsBuilder> = types().map(CellsBuilder::new).collect();
        for row in self.around.system_rows(table).map_err(wrapped)? {
            cells.iter_mut().zip(&row).for_each(|(column, value)| column.push(value.as_datum()));
        }
        let fields = types().enumerate().map(|(n, t)| Field::new(column_name(n), data_type(t), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = cells.iter_mut().map(CellsBuilder::finish).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays)?;
        let source = provider_as_source(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?));
        let plan = LogicalPlanBuilder::scan(relation.as_str(), source, None)?;
        let column = |(n, t): (usize, Ty)| (Column::new(Some(relation.as_str()), column_name(n)), t);
        Ok(Part { plan, columns: types().enumerate().map(column).collect() })
    }

    fn join(&mut self, join: &Join) -> Result<Part> {
        let left = self.source(&join.left)?;
        let right = self.source(&join.right)?;
        let mut columns = left.columns;
        columns.extend(right.columns);
        let right = right.plan.build()?;
        let kind = match join.kind {
            JoinKind::Inner if join.on.is_empty() => {
                return Ok(Part { plan: left.plan.cross_join(right)?, columns });
            }
            JoinKind::Inner => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
            JoinKind::Full => JoinType::Full,
        };
        let on = self.conditions(join.on.clone(), &columns);
        Ok(Part { plan: left.plan.join_on(right, kind, on)?, columns })
    }

    fn filtered(&mut self, part: Part, conditions: Vec<Expr>) -> Result<Part> {
        let mut plan = part.plan;
        for condition in self.conditions(conditions, &part.columns) {
            plan = plan.filter(condition)?;
        }
        Ok(Part { plan, ..part })
    }

    /// Conditions of which each may be moved alone: one that may fail takes along those before it that can be checked
    /// wherever it can.
    fn conditions(&mut self, conditions: Vec<Expr>, columns: &[Typing]) -> Vec<Logical> {
        let mut before: Vec<Expr> = Vec::new();
        let mut out = Vec::new();
        for condition in conditions {
            let reads = relations(&condition, columns);
            let guards = before.iter().filter(|b| relations(b, columns).is_subset(&reads));
            let whole = if may_fail(&condition) && !is_join_key(&condition, columns) {
                joined(guards.chain([&condition]).cloned().collect()).unwrap_or_else(|| condition.clone())
            } else {
                condition.clone()
            };
            before.push(condition);
            out.push(self.condition(whole, columns));
        }
        out
    }

    /// A condition; a comparison of what columns say on both sides is shown to DataFusion as such, so that it finds the keys
    /// of joins.
    fn condition(&mut self, condition: Expr, columns: &[Typing]) -> Logical {
        if let Expr::Compare(op, sides) = &condition
            && let (Some(left), Some(right)) = (self.side(&sides.0, columns), self.side(&sides.1, columns))
            && (left.1 == right.1 || left.1.is_integer() && right.1.is_integer())
        {
            return compared(*op, comparable(left.0, left.1), comparable(right.0, right.1));
        }
        self.computed(condition, Ty::Bool, columns)
    }

    /// A side of a comparison and its type, if it reads columns and the type can be told.
    fn side(&mut self, side: &Expr, columns: &[Typing]) -> Option<(Logical, Ty)> {
        if side.is_constant() {
            return None;
        }
        let ty = side.type_in(&|n| columns[n].1, &|n| self.around.param_type(n))?;
        Some((self.computed(side.clone(), ty, columns), ty))
    }

    /// An expression over the columns of its input.
    fn computed(&mut self, mut expr: Expr, result: Ty, columns: &[Typing]) -> Logical {
        if let Expr::Column(n) | Expr::Slot(n) = &expr {
            return Logical::Column(columns[*n].0.clone());
        }
        let mut read: Vec<usize> = Vec::new();
        expr.walk_mut(&mut |e| {
            if let Expr::Column(n) | Expr::Slot(n) = e {
                let slot = read.iter().position(|r| r == n).unwrap_or_else(|| {
                    read.push(*n);
                    read.len() - 1
                });
                *e = Expr::Slot(slot);
            }
        });
        let argument = |n: &usize| (Logical::Column(columns[*n].0.clone()), columns[*n].1);
        Computed::call(expr, result, read.iter().map(argument).collect(), &self.around)
    }

    /// Groups: their keys, then their aggregates.
    fn aggregated(&mut self, part: Part, aggregate: &Aggregate) -> Result<Part> {
        let keys = aggregate.keys.iter().zip(&aggregate.key_types);
        let keys: Vec<(Logical, Ty)> =
            keys.map(|(e, t)| (self.computed(e.clone(), t.ty, &part.columns), t.ty)).collect();
        let calls = aggregate.calls.iter().map(|call| self.call(call, &part.columns)).collect();
        let part = self.grouped(part.plan, keys, calls)?;
        match &aggregate.having {
            Some(having) => self.filtered(part, vec![having.clone()]),
            None => Ok(part),
        }
    }

    fn call(&mut self, call: &AggCall, columns: &[Typing]) -> (Logical, Ty) {
        let argument = match &call.argument {
            Some(e) => self.computed(e.clone(), call.input, columns),
            None => lit(1i64),
        };
        let filter = call.filter.clone().map(|f| Box::new(self.computed(f, Ty::Bool, columns)));
        let fold = Fold::Call { kind: call.kind, distinct: call.distinct };
        (aggregate(fold, argument, call.input, call.output, filter), call.output)
    }

    /// Groups by `keys`. Where a key stands for its value, the value is that of the group's first row.
    fn grouped(
        &mut self,
        plan: LogicalPlanBuilder,
        keys: Vec<(Logical, Ty)>,
        calls: Vec<(Logical, Ty)>,
    ) -> Result<Part> {
        let (mut by, mut folds, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (key, ty) in keys {
            let name = self.name();
            if is_native(ty) {
                by.push(key.alias(&name));
            } else {
                by.push(comparable(key.clone(), ty).alias(self.name()));
                folds.push(aggregate(Fold::First, key, ty, ty, None).alias(&name));
            }
            columns.push((Column::new_unqualified(name), ty));
        }
        for (call, ty) in calls {
            let name = self.name();
            folds.push(call.alias(&name));
            columns.push((Column::new_unqualified(name), ty));
        }
        Ok(Part { plan: plan.aggregate(by, folds)?, columns })
    }

    fn projected(&mut self, part: Part, outputs: &[Output]) -> Result<Part> {
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for output in outputs {
            let name = self.name();
            exprs.push(self.computed(output.expr.clone(), output.t.ty, &part.columns).alias(&name));
            columns.push((Column::new_unqualified(name), output.t.ty));
        }
        Ok(Part { plan: part.plan.project(exprs)?, columns })
    }

    fn distinct(&mut self, part: Part) -> Result<Part> {
        let keys = part.columns.iter().map(|(c, t)| (Logical::Column(c.clone()), *t)).collect();
        self.grouped(part.plan, keys, Vec::new())
    }
}

fn aggregate(fold: Fold, argument: Logical, input: Ty, output: Ty, filter: Option<Box<Logical>>) -> Logical {
    let function = function(fold, input, output);
    Logical::AggregateFunction(AggregateFunction::new_udf(
        function,
        vec![argument],
        false,
        filter,
        Vec::new(),
        None,
    ))
}

fn compared(op: CmpOp, left: Logical, right: Logical) -> Logical {
    match op {
        CmpOp::Eq => left.eq(right),
        CmpOp::Ne => left.not_eq(right),
        CmpOp::Lt => left.lt(right),
        CmpOp::Le => left.lt_eq(right),
        CmpOp::Gt => left.gt(right),
        CmpOp::Ge => left.gt_eq(right),
    }
}

fn sorted(part: Part, order: &[SortKey]) -> Result<Part> {
    if order.is_empty() {
        return Ok(part);
    }
    let key = |k: &SortKey| {
        let (column, ty) = &part.columns[k.output];
        Sort::new(comparable(Logical::Column(column.clone()), *ty), !k.descending, k.nulls_first)
    };
    let keys: Vec<Sort> = order.iter().map(key).collect();
    Ok(Part { plan: part.plan.sort(keys)?, ..part })
}

/// Leaves out the columns that served ORDER BY only.
fn shown(mut part: Part, visible: usize) -> Result<Part> {
    if visible == part.columns.len() {
        return Ok(part);
    }
    part.columns.truncate(visible);
    let columns: Vec<Logical> = part.columns.iter().map(|(c, _)| Logical::Column(c.clone())).collect();
    Ok(Part { plan: part.plan.project(columns)?, ..part })
}

/// Whether the condition compares what one relation says with what another one says. Conditions on each of them alone are
/// checked below the join.
fn is_join_key(condition: &Expr, columns: &[Typing]) -> bool {
    let Expr::Compare(_, sides) = condition else { return false };
    let (left, right) = (relations(&sides.0, columns), relations(&sides.1, columns));
    left.len() == 1 && right.len() == 1 && left != right
}

/// The relations that an expression reads; what is computed above a join counts as one.
fn relations<'c>(expr: &Expr, columns: &'c [Typing]) -> BTreeSet<Option<&'c str>> {
    let mut out = BTreeSet::new();
    expr.walk(&mut |e| {
        if let Expr::Column(n) | Expr::Slot(n) = e {
            out.insert(columns[*n].0.relation.as_ref().map(TableReference::table));
        }
    });
    out
}

/// Whether evaluating the expression can end in an error.
fn may_fail(expr: &Expr) -> bool {
    let mut fails = false;
    expr.walk(&mut |e| {
        fails |= matches!(
            e,
            Expr::Arith(..)
                | Expr::Negate(..)
                | Expr::Call(..)
                | Expr::Cast(..)
                | Expr::Like(_)
                | Expr::Concat(_)
        );
    });
    fails
}
