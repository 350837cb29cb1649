//! Converts function calls, including forms with keywords between their arguments. The source is the tree of
//! PostgreSQL's parser, the result is the syntax tree of `crate::ast`.
//!
//! This module does not know which functions exist.

use pg_query::NodeEnum;
use pg_query::protobuf::{CoercionForm, FuncCall, Node, WindowDef, a_const::Val};

use super::expression::function;
use super::place::{Reader, kind, strings};
use crate::ast::{
    Expr, FrameBound, FrameExclusion, FrameUnits, Function, FunctionArg, Over, TrimSide, WindowFrame,
    WindowSpec,
};
use crate::error::{Result, SqlError};

/// The bits of a frame, from PostgreSQL's parsenodes.h.
mod frame {
    pub(super) const NONDEFAULT: i32 = 0x1;
    pub(super) const RANGE: i32 = 0x2;
    pub(super) const ROWS: i32 = 0x4;
    pub(super) const BETWEEN: i32 = 0x10;
    pub(super) const START_UNBOUNDED_PRECEDING: i32 = 0x20;
    pub(super) const END_UNBOUNDED_PRECEDING: i32 = 0x40;
    pub(super) const START_UNBOUNDED_FOLLOWING: i32 = 0x80;
    pub(super) const END_UNBOUNDED_FOLLOWING: i32 = 0x100;
    pub(super) const START_OFFSET_PRECEDING: i32 = 0x800;
    pub(super) const END_OFFSET_PRECEDING: i32 = 0x1000;
    pub(super) const START_OFFSET_FOLLOWING: i32 = 0x2000;
    pub(super) const END_OFFSET_FOLLOWING: i32 = 0x4000;
    pub(super) const EXCLUDE_CURRENT_ROW: i32 = 0x8000;
    pub(super) const EXCLUDE_GROUP: i32 = 0x10000;
    pub(super) const EXCLUDE_TIES: i32 = 0x20000;
}

impl Reader<'_> {
    /// Converts a call.
    pub(super) fn call(&self, f: &FuncCall) -> Result<Expr> {
        let names = strings(&f.funcname)?;
        let has_words = f.funcformat() == CoercionForm::CoerceSqlSyntax;
        if has_words
            && let [.., name] = names.as_slice()
            && let Some(made) = self.worded(name, f)?
        {
            return Ok(made);
        }
        if names == ["substr"] && (2..=3).contains(&f.args.len()) && f.over.is_none() {
            return self.substring(f, true);
        }
        self.plain_call(f).map(Expr::Function)
    }

    /// Converts a call with keywords between its arguments. Returns `None` if it is an ordinary call.
    fn worded(&self, name: &str, f: &FuncCall) -> Result<Option<Expr>> {
        let boxed = |n: usize| self.boxed(f.args.get(n));
        let rest = |n: usize| self.maybe(f.args.get(n)).map(|e| e.map(Box::new));
        Ok(Some(match (name, f.args.len()) {
            ("timezone", 2) => Expr::AtTimeZone { timestamp: boxed(1)?, time_zone: boxed(0)? },
            ("timezone", _) => return Err(SqlError::unsupported("AT LOCAL")),
            ("extract", 2) => Expr::Extract { field: text_of(&f.args[0])?.to_owned(), expr: boxed(1)? },
            ("overlay", 3 | 4) => {
                Expr::Overlay { expr: boxed(0)?, what: boxed(1)?, from: boxed(2)?, r#for: rest(3)? }
            }
            ("position", 2) => Expr::Position { expr: boxed(1)?, r#in: boxed(0)? },
            ("substring", 2 | 3) => self.substring(f, false)?,
            ("btrim" | "ltrim" | "rtrim", 1 | 2) => Expr::Trim {
                expr: boxed(0)?,
                side: match name {
                    "ltrim" => TrimSide::Leading,
                    "rtrim" => TrimSide::Trailing,
                    _ => TrimSide::Both,
                },
                what: rest(1)?,
            },
            ("xmlexists", _) => return Err(SqlError::unsupported("XML")),
            _ => return Ok(None),
        }))
    }

    fn substring(&self, f: &FuncCall, shorthand: bool) -> Result<Expr> {
        Ok(Expr::Substring {
            expr: self.boxed(f.args.first())?,
            from: self.maybe(f.args.get(1))?.map(Box::new),
            r#for: self.maybe(f.args.get(2))?.map(Box::new),
            shorthand,
        })
    }

    /// Converts an ordinary call.
    pub(super) fn plain_call(&self, f: &FuncCall) -> Result<Function> {
        if f.func_variadic {
            return Err(SqlError::unsupported("VARIADIC"));
        }
        let mut args = Vec::with_capacity(f.args.len());
        for arg in &f.args {
            args.push(self.argument(arg)?);
        }
        if f.agg_star {
            args.push(FunctionArg::Star);
        }
        let order = self.order_items(&f.agg_order)?;
        let (within_group, order_by) =
            if f.agg_within_group { (order, Vec::new()) } else { (Vec::new(), order) };
        Ok(Function {
            distinct: f.agg_distinct,
            args,
            order_by,
            within_group,
            filter: self.maybe(f.agg_filter.as_deref())?.map(Box::new),
            over: f.over.as_deref().map(|over| self.over(over).map(Box::new)).transpose()?,
            ..function(self.name_of(&f.funcname, f.location)?)
        })
    }

    /// Converts an argument of a call.
    pub(super) fn argument(&self, arg: &Node) -> Result<FunctionArg> {
        Ok(match kind(Some(arg))? {
            NodeEnum::NamedArgExpr(named) => {
                FunctionArg::Named(self.ident(&named.name, named.location), self.expr(named.arg.as_deref())?)
            }
            NodeEnum::ColumnRef(c)
                if matches!(c.fields.last().map(|f| &f.node), Some(Some(NodeEnum::AStar(_)))) =>
            {
                let name = self.name_of(&c.fields[..c.fields.len() - 1], c.location)?;
                FunctionArg::TableStar(name)
            }
            _ => FunctionArg::Expr(self.expr(Some(arg))?),
        })
    }

    fn over(&self, over: &WindowDef) -> Result<Over> {
        // OVER w names a window. OVER (w ...) is a new window that refers to w.
        if !over.name.is_empty() {
            return Ok(Over::Name(self.ident(&over.name, over.location)));
        }
        self.window(over).map(Over::Spec)
    }

    /// Converts the specification of a window.
    pub(super) fn window(&self, w: &WindowDef) -> Result<WindowSpec> {
        Ok(WindowSpec {
            window_name: (!w.refname.is_empty()).then(|| self.ident(&w.refname, w.location)),
            partition_by: self.exprs(&w.partition_clause)?,
            order_by: self.order_items(&w.order_clause)?,
            frame: self.frame(w)?,
        })
    }

    fn frame(&self, w: &WindowDef) -> Result<Option<WindowFrame>> {
        let has = |bits: i32| w.frame_options & bits != 0;
        if !has(frame::NONDEFAULT) {
            return Ok(None);
        }
        let units = match (has(frame::RANGE), has(frame::ROWS)) {
            (true, _) => FrameUnits::Range,
            (_, true) => FrameUnits::Rows,
            _ => FrameUnits::Groups,
        };
        let offset = |node: Option<&Node>| Ok::<_, SqlError>(Some(self.boxed(node)?));
        let (start, end) = (w.start_offset.as_deref(), w.end_offset.as_deref());
        let start = if has(frame::START_UNBOUNDED_PRECEDING) {
            FrameBound::Preceding(None)
        } else if has(frame::START_UNBOUNDED_FOLLOWING) {
            FrameBound::Following(None)
        } else if has(frame::START_OFFSET_PRECEDING) {
            FrameBound::Preceding(offset(start)?)
        } else if has(frame::START_OFFSET_FOLLOWING) {
            FrameBound::Following(offset(start)?)
        } else {
            FrameBound::CurrentRow
        };
        let end = if !has(frame::BETWEEN) {
            FrameBound::CurrentRow
        } else if has(frame::END_UNBOUNDED_PRECEDING) {
            FrameBound::Preceding(None)
        } else if has(frame::END_UNBOUNDED_FOLLOWING) {
            FrameBound::Following(None)
        } else if has(frame::END_OFFSET_PRECEDING) {
            FrameBound::Preceding(offset(end)?)
        } else if has(frame::END_OFFSET_FOLLOWING) {
            FrameBound::Following(offset(end)?)
        } else {
            FrameBound::CurrentRow
        };
        Ok(Some(WindowFrame { units, start, end, exclude: exclusion(w.frame_options) }))
    }
}

/// Returns the rows that a frame excludes.
fn exclusion(options: i32) -> FrameExclusion {
    let has = |bits: i32| options & bits != 0;
    match () {
        () if has(frame::EXCLUDE_CURRENT_ROW) => FrameExclusion::CurrentRow,
        () if has(frame::EXCLUDE_GROUP) => FrameExclusion::Group,
        () if has(frame::EXCLUDE_TIES) => FrameExclusion::Ties,
        () => FrameExclusion::NoOthers,
    }
}

fn text_of(node: &Node) -> Result<&str> {
    match kind(Some(node))? {
        NodeEnum::AConst(c) => match &c.val {
            Some(Val::Sval(s)) => Ok(&s.sval),
            _ => Err(SqlError::unsupported("this field")),
        },
        _ => Err(SqlError::unsupported("this field")),
    }
}
