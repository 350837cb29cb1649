//! Chooses the order of joins. Without this rule, DataFusion would join in the order of the statement and
//! only avoid cross products.
//!
//! Inner joins next to each other are put into the order with the lowest estimated cost. Of the two sides of
//! a join, the smaller one is kept in memory. Semi joins with few rows come first.
//!
//! Invariants
//! 1. The new plan returns the same rows in the same columns.
//! 2. A condition is moved only as a whole. If one part of a condition protects another part from an error,
//!    both are in one expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr as Logical, Filter, Join, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{Optimizer, OptimizerContext};
use varve_sql::statistics::GUESSED;

use crate::estimate::Estimator;

/// The largest number of relations for which every order is considered.
const EXHAUSTIVE_MAX: usize = 9;
/// The largest number of relations whose order is chosen. If there are more, they are joined in the order of
/// the statement, except those that are joined first. There are two reasons: the time of the search grows
/// with the cube of the number, and a set of relations is stored in the bits of one word.
const ORDERED_MAX: usize = 32;

/// Returns the plan with its joins in the chosen order.
pub fn ordered(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_join(&plan) {
        return Ok(plan);
    }
    let plan = Orderer::default().order(plan)?;
    // This rule removes each column above the last operator that reads it.
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    optimizer.optimize(plan, &OptimizerContext::new(), |_, _| {})
}

fn has_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(_)) || plan.inputs().into_iter().any(has_join)
}

#[derive(Default)]
struct Orderer {
    estimator: Estimator,
}

/// Relations that are joined by inner joins, and the conditions of these joins.
#[derive(Default)]
struct Cluster {
    inputs: Vec<LogicalPlan>,
    conditions: Vec<Logical>,
}

impl Orderer {
    fn order(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Join(join) if is_inner(&join) && inputs_of(&join) <= ORDERED_MAX => {
                let schema = join.schema.clone();
                let cluster = self.cluster(LogicalPlan::Join(join))?;
                shown(self.arrange(cluster)?, &schema)
            }
            LogicalPlan::Join(join) if !is_inner(&join) => self.outer_or_semi(join),
            other => other.map_children(|child| self.order(child).map(Transformed::yes)).map(|t| t.data),
        }
    }

    /// Returns the relations of inner joins that are next to each other. The joins inside each relation are
    /// already ordered.
    fn cluster(&self, plan: LogicalPlan) -> Result<Cluster> {
        let mut cluster = Cluster::default();
        self.flatten(plan, &mut cluster)?;
        Ok(cluster)
    }

    fn flatten(&self, plan: LogicalPlan, cluster: &mut Cluster) -> Result<()> {
        match plan {
            LogicalPlan::Join(join) if is_inner(&join) => {
                let equal = |(l, r): (Logical, Logical)| l.eq(r);
                cluster.conditions.extend(join.on.into_iter().map(equal));
                cluster.conditions.extend(join.filter.into_iter().flat_map(split_conjunction_owned));
                self.flatten(Arc::unwrap_or_clone(join.left), cluster)?;
                self.flatten(Arc::unwrap_or_clone(join.right), cluster)
            }
            LogicalPlan::Projection(p) if only_leaves_out(&p) && joins_below(&p.input) => {
                self.flatten(Arc::unwrap_or_clone(p.input), cluster)
            }
            other => {
                cluster.inputs.push(self.order(other)?);
                Ok(())
            }
        }
    }

    /// Orders the joins of both inputs of an outer, semi or anti join.
    fn outer_or_semi(&self, mut join: Join) -> Result<LogicalPlan> {
        let right = self.order(Arc::unwrap_or_clone(join.right))?;
        join.right = Arc::new(right);
        let few = joins_below(&join.left) && relations(&join.left) <= ORDERED_MAX;
        if join.join_type == JoinType::LeftSemi && few {
            let schema = join.schema.clone();
            let mut cluster = self.cluster(Arc::unwrap_or_clone(join.left))?;
            if let Some(at) = self.asked_first(&join.on, &join.filter, &join.right, &cluster) {
                let input = cluster.inputs.remove(at);
                cluster.inputs.push(self.sided(Join::try_new(
                    Arc::new(input),
                    join.right,
                    join.on,
                    join.filter,
                    join.join_type,
                    join.join_constraint,
                    join.null_equality,
                    join.null_aware,
                )?)?);
                return shown(self.arrange(cluster)?, &schema);
            }
            join.left = Arc::new(shown(self.arrange(cluster)?, &schema)?);
        } else {
            join.left = Arc::new(self.order(Arc::unwrap_or_clone(join.left))?);
        }
        self.sided(join)
    }

    /// Returns the relation on which a semi join should run before the other joins, if there is one. It must
    /// be the only relation that the semi join reads, and the semi join must be expected to remove many of
    /// its rows.
    fn asked_first(
        &self,
        on: &[(Logical, Logical)],
        filter: &Option<Logical>,
        right: &LogicalPlan,
        cluster: &Cluster,
    ) -> Option<usize> {
        let read = on.iter().map(|(l, _)| l).chain(filter).flat_map(Logical::column_refs);
        let read: BTreeSet<&Column> = read.filter(|c| !right.schema().has_column(c)).collect();
        let holds = |input: &LogicalPlan| read.iter().all(|c| input.schema().has_column(c));
        let at = cluster.inputs.iter().position(holds)?;
        (self.estimator.rows(right) * 2.0 < self.estimator.rows(&cluster.inputs[at])).then_some(at)
    }

    /// Returns the join with its smaller side on the left, because the left side is kept in memory.
    fn sided(&self, join: Join) -> Result<LogicalPlan> {
        let turned = match join.join_type {
            JoinType::Left => JoinType::Right,
            JoinType::LeftSemi => JoinType::RightSemi,
            JoinType::LeftAnti => JoinType::RightAnti,
            _ => return Ok(LogicalPlan::Join(join)),
        };
        let larger = self.estimator.rows(&join.left) > 1.5 * self.estimator.rows(&join.right);
        if join.null_aware || !larger || join.on.is_empty() {
            return Ok(LogicalPlan::Join(join));
        }
        let schema = join.schema.clone();
        let on = join.on.into_iter().map(|(l, r)| (r, l)).collect();
        let turned = Join::try_new(
            join.right,
            join.left,
            on,
            join.filter,
            turned,
            join.join_constraint,
            join.null_equality,
            false,
        )?;
        shown(LogicalPlan::Join(turned), &schema)
    }

    /// Joins the relations in the order with the lowest estimated cost.
    fn arrange(&self, cluster: Cluster) -> Result<LogicalPlan> {
        let mut graph = Graph::new(&self.estimator, cluster)?;
        let tree = if graph.inputs.len() <= EXHAUSTIVE_MAX { graph.best() } else { graph.greedy() };
        let plan = graph.build(&tree)?;
        graph.filtered(plan, |_| true)
    }
}

/// The order of joins as a tree.
#[derive(Debug, Clone)]
enum Tree {
    Input(usize),
    Join(Box<(Tree, Tree)>),
}

/// One input of a join.
struct Side {
    plan: LogicalPlan,
    /// The relations in the plan, as bits.
    mask: u64,
}

impl Tree {
    fn mask(&self) -> u64 {
        match self {
            Tree::Input(n) => 1 << n,
            Tree::Join(sides) => sides.0.mask() | sides.1.mask(),
        }
    }
}

/// One condition between relations.
struct Edge {
    condition: Option<Logical>,
    /// The relations that it reads.
    mask: u64,
    /// The relations that the left side and the right side read, if the condition is an equality.
    sides: Option<(u64, u64)>,
    /// The fraction of the pairs of rows that satisfy the condition.
    selectivity: f64,
}

/// Relations and the conditions between them.
struct Graph {
    inputs: Vec<Option<LogicalPlan>>,
    rows: Vec<f64>,
    edges: Vec<Edge>,
}

impl Graph {
    fn new(estimator: &Estimator, cluster: Cluster) -> Result<Graph> {
        let mask = |e: &Logical| -> u64 {
            let refs = e.column_refs();
            let reads = |input: &LogicalPlan| refs.iter().any(|c| input.schema().has_column(c));
            cluster.inputs.iter().enumerate().filter(|(_, i)| reads(i)).map(|(n, _)| 1u64 << n).sum()
        };
        let mut edges: Vec<Edge> = Vec::new();
        for condition in cluster.conditions {
            let sides = equal_sides(&condition).map(|(l, r)| (mask(l), mask(r)));
            let sides = sides.filter(|(l, r)| *l != 0 && *r != 0 && l & r == 0);
            let mask = mask(&condition);
            edges.push(Edge { condition: Some(condition), mask, sides, selectivity: GUESSED });
        }
        let rows: Vec<f64> = cluster.inputs.iter().map(|input| estimator.rows(input)).collect();
        weigh(estimator, &cluster.inputs, &rows, &mut edges);
        Ok(Graph { inputs: cluster.inputs.into_iter().map(Some).collect(), rows, edges })
    }

    /// Returns the estimated number of rows of the join of these relations.
    fn card(&self, mask: u64) -> f64 {
        let rows = self.rows.iter().enumerate().filter(|(n, _)| mask & (1 << n) != 0).map(|(_, r)| r);
        let kept = self.edges.iter().filter(|e| e.mask & mask == e.mask && e.mask.count_ones() > 1);
        (rows.product::<f64>() * kept.map(|e| e.selectivity).product::<f64>()).max(1.0)
    }

    /// Returns the cost of joining two sets of relations. It is made up of the rows that are kept in memory,
    /// the rows that are looked up, and the rows of the result.
    fn cost(&self, left: u64, right: u64, cards: &dyn Fn(u64) -> f64) -> f64 {
        let (a, b) = (cards(left), cards(right));
        let keyed = self.edges.iter().any(|e| {
            e.sides
                .is_some_and(|(l, r)| (l & left == l && r & right == r) || (l & right == l && r & left == r))
        });
        let pairs = if keyed { 2.0 * a.min(b) + a.max(b) } else { a * b };
        pairs + cards(left | right)
    }

    /// Returns the cheapest of all trees (dynamic programming over sets of relations).
    fn best(&self) -> Tree {
        let all = (1usize << self.inputs.len()) - 1;
        let cards: Vec<f64> = (0..=all).map(|mask| self.card(mask as u64)).collect();
        let mut table: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); all + 1];
        for mask in 1..=all {
            if mask.is_power_of_two() {
                table[mask] = (0.0, 0);
                continue;
            }
            let mut left = (mask - 1) & mask;
            while left > 0 {
                let right = mask & !left;
                // Each pair of sides is considered once.
                if left > right {
                    let here = self.cost(left as u64, right as u64, &|m| cards[m as usize]);
                    let cost = table[left].0 + table[right].0 + here;
                    if cost < table[mask].0 {
                        table[mask] = (cost, left);
                    }
                }
                left = (left - 1) & mask;
            }
        }
        fn tree(mask: usize, table: &[(f64, usize)]) -> Tree {
            if mask.is_power_of_two() {
                return Tree::Input(mask.trailing_zeros() as usize);
            }
            let left = table[mask].1;
            Tree::Join(Box::new((tree(left, table), tree(mask & !left, table))))
        }
        tree(all, &table)
    }

    /// Repeatedly joins the pair of trees with the lowest cost, until one tree is left.
    fn greedy(&self) -> Tree {
        let mut trees: Vec<Tree> = (0..self.inputs.len()).map(Tree::Input).collect();
        while trees.len() > 1 {
            let mut best = (f64::INFINITY, 0, 1);
            for a in 0..trees.len() {
                for b in a + 1..trees.len() {
                    let cost = self.cost(trees[a].mask(), trees[b].mask(), &|m| self.card(m));
                    if cost < best.0 {
                        best = (cost, a, b);
                    }
                }
            }
            let right = trees.remove(best.2);
            let left = trees.remove(best.1);
            trees.push(Tree::Join(Box::new((left, right))));
        }
        trees.pop().unwrap_or(Tree::Input(0))
    }

    /// Returns the plan of a tree. Each condition is placed at the lowest node where it can be checked.
    fn build(&mut self, tree: &Tree) -> Result<LogicalPlan> {
        match tree {
            Tree::Input(n) => {
                let Some(plan) = self.inputs[*n].take() else {
                    return datafusion::common::internal_err!("a relation was joined twice");
                };
                let own = 1 << n;
                self.filtered(plan, |mask| mask == own)
            }
            Tree::Join(sides) => {
                let smaller = self.card(sides.0.mask()) <= self.card(sides.1.mask());
                let (left, right) = if smaller { (&sides.0, &sides.1) } else { (&sides.1, &sides.0) };
                let left = Side { plan: self.build(left)?, mask: left.mask() };
                let right = Side { plan: self.build(right)?, mask: right.mask() };
                self.joined(left, right)
            }
        }
    }

    fn joined(&mut self, left_side: Side, right_side: Side) -> Result<LogicalPlan> {
        let (left, right) = (left_side.mask, right_side.mask);
        let (mut on, mut rest) = (Vec::new(), Vec::new());
        for edge in &mut self.edges {
            if edge.mask & (left | right) != edge.mask || edge.mask == 0 {
                continue;
            }
            let Some(condition) = edge.condition.take() else { continue };
            match (edge.sides, condition) {
                (Some((l, r)), Logical::BinaryExpr(b)) if l & left == l && r & right == r => {
                    on.push((*b.left, *b.right));
                }
                (Some((l, r)), Logical::BinaryExpr(b)) if l & right == l && r & left == r => {
                    on.push((*b.right, *b.left));
                }
                (_, condition) => rest.push(condition),
            }
        }
        let join = Join::try_new(
            Arc::new(left_side.plan),
            Arc::new(right_side.plan),
            on,
            conjunction(rest),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }

    /// Adds a filter to the plan, with those remaining conditions whose relations are `wanted`.
    fn filtered(&mut self, plan: LogicalPlan, wanted: impl Fn(u64) -> bool) -> Result<LogicalPlan> {
        let left = self.edges.iter_mut().filter(|e| wanted(e.mask)).filter_map(|e| e.condition.take());
        match conjunction(left.collect::<Vec<_>>()) {
            Some(condition) => Ok(LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?)),
            None => Ok(plan),
        }
    }
}

/// Sets the selectivity of equalities. All equalities between the same two relations are estimated together.
fn weigh(estimator: &Estimator, inputs: &[LogicalPlan], rows: &[f64], edges: &mut [Edge]) {
    let mut pairs: BTreeSet<u64> = BTreeSet::new();
    pairs.extend(edges.iter().filter(|e| e.sides.is_some() && e.mask.count_ones() == 2).map(|e| e.mask));
    for pair in pairs {
        let side = |bit: u64| -> f64 {
            let of_input = |e: &Edge| {
                let (l, r) = equal_sides(e.condition.as_ref()?)?;
                Some(if e.sides?.0 == bit { l.clone() } else { r.clone() })
            };
            let exprs: Vec<Logical> =
                edges.iter().filter(|e| e.mask == pair && e.sides.is_some()).filter_map(of_input).collect();
            let at = bit.trailing_zeros() as usize;
            estimator.distinct(&inputs[at], &exprs, rows[at])
        };
        let low = 1 << pair.trailing_zeros();
        let domain = side(low).max(side(pair & !low));
        let mut first = true;
        for edge in edges.iter_mut().filter(|e| e.mask == pair && e.sides.is_some()) {
            edge.selectivity = if first { 1.0 / domain } else { 1.0 };
            first = false;
        }
    }
}

fn equal_sides(condition: &Logical) -> Option<(&Logical, &Logical)> {
    match condition {
        Logical::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => Some((left, right)),
        _ => None,
    }
}

fn is_inner(join: &Join) -> bool {
    join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing
}

/// Returns the number of relations that are joined by this join and the inner joins directly below it.
fn inputs_of(join: &Join) -> usize {
    relations(&join.left) + relations(&join.right)
}

fn relations(plan: &LogicalPlan) -> usize {
    match plan {
        LogicalPlan::Join(join) if is_inner(join) => inputs_of(join),
        LogicalPlan::Projection(p) if only_leaves_out(p) && joins_below(&p.input) => relations(&p.input),
        _ => 1,
    }
}

/// Returns whether the plan is an inner join, or projections above one that only leave out or reorder
/// columns.
fn joins_below(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_inner(join),
        LogicalPlan::Projection(p) => only_leaves_out(p) && joins_below(&p.input),
        _ => false,
    }
}

fn only_leaves_out(projection: &Projection) -> bool {
    projection.expr.iter().all(|e| matches!(e, Logical::Column(_)))
}

/// Returns the plan with the columns of this schema, in the order of the schema.
fn shown(plan: LogicalPlan, schema: &DFSchemaRef) -> Result<LogicalPlan> {
    if plan.schema().columns() == schema.columns() {
        return Ok(plan);
    }
    let columns = schema.columns().into_iter().map(Logical::Column);
    LogicalPlanBuilder::from(plan).project(columns.collect::<Vec<_>>())?.build()
}
