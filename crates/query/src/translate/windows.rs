//! Translates calls of window functions. The plan sorts and partitions rows by the columns of the window, and
//! then computes the calls.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::{
    Expr as Logical, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};
use varve_engine::Value;
use varve_sql::general::{Expr, FrameBound, FrameUnits, OrderKey, Ty, Typed, WinCall};

use super::{Part, Translator, Typing};
use crate::computed::{Direction, comparable, order_of};
use crate::error::wrapped;
use crate::window::{End, WindowCall, check_distance, count};

/// The columns by which the rows of one window are partitioned and sorted.
#[derive(Clone)]
struct Keys {
    partition: Vec<Column>,
    order: Column,
}

/// The arguments of a call: the columns, their types, and the expressions for columns that must be added.
struct Arguments {
    columns: Vec<Column>,
    types: Vec<Ty>,
    added: Vec<Logical>,
}

/// The start or the end of a window frame.
#[derive(Clone, Copy)]
enum FrameSide {
    Start,
    End,
}

impl Arguments {
    /// Adds a column with this name. Returns the number of the argument.
    fn push(&mut self, value: Logical, ty: Ty, name: String) -> usize {
        self.added.push(value.alias(&name));
        self.columns.push(Column::new_unqualified(name));
        self.types.push(ty);
        self.columns.len() - 1
    }
}

impl Translator<'_> {
    /// Adds a column for each call of a window function.
    pub(super) fn windowed(&mut self, mut part: Part, calls: &[WinCall]) -> Result<Part> {
        // Equal windows share their columns, so that the rows are sorted only once.
        let mut known: HashMap<String, Keys> = HashMap::new();
        let below = part.columns.len();
        let mut calls = calls.to_vec();
        for call in &mut calls {
            part = self.owned_call(part, call)?;
        }
        let width = part.columns.len();
        for call in &calls {
            let over = part.columns[..width].to_vec();
            let mut added: Vec<Logical> = Vec::new();
            let written = format!("{:?} {:?}", call.partition, call.order);
            let keys = match known.get(&written) {
                Some(keys) => keys.clone(),
                None => {
                    let keys = self.window_keys(call, &over, &mut added);
                    known.insert(written, keys.clone());
                    keys
                }
            };
            part = self.window(part, call, &over, &keys, added)?;
        }
        // The binder does not know the columns with the answers of subqueries. So they are removed, and the
        // columns of the calls follow the columns that the binder knows.
        part.columns.drain(below..width);
        Ok(part)
    }

    /// Replaces outer values in the call by parameters, and subqueries by columns with their answers.
    fn owned_call(&mut self, mut part: Part, call: &mut WinCall) -> Result<Part> {
        let mut state = Ok(());
        call.each_mut(&mut |e| {
            *e = self.own(e);
            if state.is_ok() && e.has_subquery() {
                match self.applied(part.clone(), std::slice::from_mut(e)) {
                    Ok(applied) => part = applied,
                    Err(error) => state = Err(error),
                }
            }
        });
        state.map(|()| part)
    }

    /// Returns the columns by which the rows of a window are partitioned and sorted.
    fn window_keys(&mut self, call: &WinCall, over: &[Typing], added: &mut Vec<Logical>) -> Keys {
        let mut partition = Vec::new();
        for (e, ty) in &call.partition {
            let value = self.computed(without_blanks(e.clone(), *ty), *ty, over);
            let name = self.name();
            added.push(comparable(value, *ty).alias(&name));
            partition.push(Column::new_unqualified(name));
        }
        let order = self.order_key(&call.order, None, over, added);
        Keys { partition, order }
    }

    /// Adds a column with the sort key of the rows. If `value` is given, it replaces the value of the single
    /// ORDER BY expression.
    fn order_key(
        &mut self,
        order: &[OrderKey],
        value: Option<&Expr>,
        over: &[Typing],
        added: &mut Vec<Logical>,
    ) -> Column {
        let name = self.name();
        let parts: Vec<(Logical, Ty, Direction)> = order
            .iter()
            .map(|o| {
                let direction = Direction { descending: o.descending, nulls_first: o.nulls_first };
                let value = without_blanks(value.unwrap_or(&o.expr).clone(), o.ty);
                (self.computed(value, o.ty, over), o.ty, direction)
            })
            .collect();
        let key = if parts.is_empty() {
            self.computed(Expr::Const(Value::Bytea(Vec::new())), Ty::Bytea, over)
        } else {
            order_of(parts)
        };
        added.push(key.alias(&name));
        Column::new_unqualified(name)
    }

    /// Returns the sort key for an aggregate that collects values and sorts them.
    pub(super) fn order_of_call(&mut self, order: &[OrderKey], over: &[Typing]) -> Logical {
        let parts: Vec<(Logical, Ty, Direction)> = order
            .iter()
            .map(|o| {
                let direction = Direction { descending: o.descending, nulls_first: o.nulls_first };
                (self.computed(o.expr.clone(), o.ty, over), o.ty, direction)
            })
            .collect();
        if parts.is_empty() {
            return self.computed(Expr::Const(Value::Bytea(Vec::new())), Ty::Bytea, over);
        }
        order_of(parts)
    }

    fn window(
        &mut self,
        part: Part,
        call: &WinCall,
        over: &[Typing],
        keys: &Keys,
        added: Vec<Logical>,
    ) -> Result<Part> {
        let mut arguments = Arguments { columns: vec![keys.order.clone()], types: vec![Ty::Bytea], added };
        let start = self.frame_end(FrameSide::Start, call, over, &mut arguments)?;
        let end = self.frame_end(FrameSide::End, call, over, &mut arguments)?;
        let filter = call.filter.iter().map(|f| (f.clone(), Ty::Bool));
        let at = arguments.columns.len();
        for (e, ty) in filter.chain(call.arguments.iter().cloned()) {
            let value = self.computed(e, ty, over);
            arguments.push(value, ty, self.name());
        }
        let Arguments { columns: arguments, types, added } = arguments;
        let filter = call.filter.is_some().then_some(at);
        let first = at + usize::from(filter.is_some());
        let units = match call.frame.units {
            FrameUnits::Range if matches!(start, End::Count(_)) => FrameUnits::Groups,
            units => units,
        };
        let function = WindowCall {
            function: call.function,
            units,
            start,
            end,
            exclude: call.frame.exclude,
            types,
            filter,
            first,
            output: call.output,
        };
        let function = function.into_udf(self.around.clone());
        let plan = if added.is_empty() {
            part.plan
        } else {
            let there = part.plan.schema().columns().into_iter().map(Logical::Column);
            part.plan.clone().project(there.chain(added).collect::<Vec<_>>())?
        };
        let definition = WindowFunctionDefinition::WindowUDF(Arc::new(function));
        let arguments = arguments.into_iter().map(Logical::Column).collect();
        let mut expr = WindowFunction::new(definition, arguments);
        expr.params.partition_by = keys.partition.iter().cloned().map(Logical::Column).collect();
        expr.params.order_by = vec![Sort::new(Logical::Column(keys.order.clone()), true, false)];
        expr.params.window_frame = whole_partition();
        let name = self.name();
        let plan = plan.window([Logical::WindowFunction(Box::new(expr)).alias(&name)])?;
        let mut columns = part.columns;
        columns.push((Column::new_unqualified(name), call.output));
        Ok(Part { plan, columns })
    }

    /// Records that the plan is valid only for this value of a constant.
    fn assume_value(&self, e: &Expr) -> Result<()> {
        let image = crate::kept::image(e, &self.around).map_err(wrapped)?;
        self.assume(|assumed| assumed.values.push((e.clone(), image)));
        Ok(())
    }

    /// Returns the start or the end of a frame. The values that it reads are added to the arguments.
    fn frame_end(
        &mut self,
        side: FrameSide,
        call: &WinCall,
        over: &[Typing],
        arguments: &mut Arguments,
    ) -> Result<End> {
        let (bound, name) = match side {
            FrameSide::Start => (&call.frame.start, "starting"),
            FrameSide::End => (&call.frame.end, "ending"),
        };
        Ok(match bound {
            FrameBound::Unbounded => End::Unbounded,
            FrameBound::Current => End::Current,
            FrameBound::Count(offset, before) if self.is_known(offset) => {
                let count = self.frame_offset(offset, name)?;
                End::Count(if *before { -count } else { count })
            }
            FrameBound::Count(offset, before) => {
                let offset = self.computed(offset.clone(), Ty::Int8, over);
                End::Argument(arguments.push(offset, Ty::Int8, self.name()), *before)
            }
            FrameBound::Value(offset, value) => {
                let distance = match self.is_known(offset) {
                    true => self.known_distance(offset, name).map(|()| None)?,
                    false => self.distance_type(offset, over),
                };
                let distance = distance.map(|ty| {
                    let offset = self.computed(offset.clone(), ty, over);
                    arguments.push(offset, ty, self.name())
                });
                let key = self.order_key(&call.order, Some(value), over, &mut arguments.added);
                arguments.columns.push(key);
                arguments.types.push(Ty::Bytea);
                End::Key(arguments.columns.len() - 1, distance)
            }
        })
    }

    /// Returns the number of rows or groups between the current row and a bound of the frame.
    fn frame_offset(&self, offset: &Expr, which: &str) -> Result<i64> {
        self.assume_value(offset)?;
        self.around.value(offset).and_then(|value| count(&value, which)).map_err(wrapped)
    }

    /// Checks that a distance is not negative. Returns the error 22013 if it is.
    fn known_distance(&self, offset: &Expr, which: &str) -> Result<()> {
        self.assume_value(offset)?;
        self.around.value(offset).and_then(|value| check_distance(&value, which)).map_err(wrapped)
    }

    /// Returns whether the value can be computed before the plan runs. It can be if it depends neither on a
    /// subquery nor on an outer query.
    fn is_known(&self, e: &Expr) -> bool {
        e.is_constant() && !e.is_volatile() && !self.is_given(e)
    }

    fn distance_type(&self, e: &Expr, over: &[Typing]) -> Option<Ty> {
        e.type_in(&|n| over[n].1, &|n| self.around.param_type(n))
    }
}

/// Removes blanks at the end of a value of type char, because they do not count in comparisons. A char
/// without a length may have such blanks.
pub(super) fn without_blanks(e: Expr, ty: Ty) -> Expr {
    match ty {
        Ty::Char => Expr::Cast(Box::new(e), Ty::Char, Typed::plain(Ty::Text), false),
        _ => e,
    }
}

/// Returns a frame that is the whole partition. The function gets whole partitions and finds the frames
/// itself.
fn whole_partition() -> WindowFrame {
    let whole = ScalarValue::UInt64(None);
    let bounds = (WindowFrameBound::Preceding(whole.clone()), WindowFrameBound::Following(whole));
    WindowFrame::new_bounds(WindowFrameUnits::Rows, bounds.0, bounds.1)
}
