//! Makes the steps of a plan from a chosen order of tables: it drops unused columns and renumbers the others.

use super::{Chosen, JoinParts};
use crate::access::joined;
use crate::eval::Expr;
use crate::plan::{Access, KeyRange, Select, Source, Step, TableAccess};

/// Makes the chosen steps the source of the query.
pub(super) fn apply(select: &mut Select, parts: &JoinParts, chosen: Vec<Chosen>) {
    if chosen.iter().any(|c| c.ordered.is_some()) {
        select.order = Box::default();
    }
    let mut steps: Vec<(usize, Step)> = chosen.into_iter().map(|c| step(parts, c)).collect();
    let mut used = vec![false; parts.tables.iter().map(|p| p.table.columns.len()).sum()];
    each_of_select(select, &mut |e| mark(e, &mut used));
    steps.iter_mut().for_each(|(_, s)| each_of_step(s, &mut |e| mark(e, &mut used)));
    let mut places = vec![usize::MAX; used.len()];
    let mut next = 0;
    for (part, step) in &mut steps {
        let first = parts.tables[*part].first;
        let kept = |c: &usize| used[first + c];
        step.columns = (0..parts.tables[*part].table.columns.len()).filter(kept).collect();
        for column in &step.columns {
            places[first + column] = next;
            next += 1;
        }
        step.target.note_reads(&step.columns);
    }
    let mut renumber = |e: &mut Expr| {
        if let Expr::Column(c) = e {
            *c = places[*c];
        }
    };
    each_of_select(select, &mut renumber);
    steps.iter_mut().for_each(|(_, s)| each_of_step(s, &mut renumber));
    select.filter = None;
    select.source = Source::Loops(steps.into_iter().map(|(_, s)| s).collect());
}

fn mark(e: &mut Expr, used: &mut [bool]) {
    if let Expr::Column(c) = e {
        used[*c] = true;
    }
}

/// Makes a step. Its expressions still number the columns as in the joined row.
fn step(parts: &JoinParts, chosen: Chosen) -> (usize, Step) {
    let part = &parts.tables[chosen.part];
    let kept = chosen.conditions.into_iter().zip(&chosen.choice.covered).filter(|(_, covered)| !**covered);
    let target = TableAccess {
        table: part.table.clone(),
        access: chosen.choice.access,
        reverse: chosen.ordered.unwrap_or(false),
        in_order: chosen.ordered.is_some(),
        reads: None,
    };
    let filter = joined(kept.map(|(c, _)| c).collect());
    let mut step = Step { target, columns: Box::default(), filter };
    each_of_step(&mut step, &mut |e| match e {
        Expr::Column(c) => *c += part.first,
        Expr::Slot(c) => *e = Expr::Column(*c),
        _ => {}
    });
    (chosen.part, step)
}

/// Calls `f` for each expression that reads the input row.
fn each_of_select(select: &mut Select, f: &mut dyn FnMut(&mut Expr)) {
    match &mut select.aggregate {
        None => select.outputs.iter_mut().for_each(|o| o.expr.walk_mut(f)),
        Some(aggregate) => {
            aggregate.keys.iter_mut().for_each(|k| k.walk_mut(f));
            for call in &mut aggregate.calls {
                call.exprs_mut().for_each(|e| e.walk_mut(f));
            }
        }
    }
}

fn each_of_step(step: &mut Step, f: &mut dyn FnMut(&mut Expr)) {
    match &mut step.target.access {
        Access::Full => {}
        Access::Point(parts) => parts.iter_mut().for_each(|e| e.walk_mut(f)),
        Access::Ranges { ranges, .. } => ranges.iter_mut().for_each(|r| each_of_range(r, f)),
    }
    step.filter.iter_mut().for_each(|e| e.walk_mut(f));
}

fn each_of_range(range: &mut KeyRange, f: &mut dyn FnMut(&mut Expr)) {
    let bounds = range.lower.iter_mut().chain(&mut range.upper).map(|(e, _)| e);
    range.equal.iter_mut().chain(bounds).for_each(|e| e.walk_mut(f));
}
