//! Calls of functions, those with words between their arguments among them.
//!
//! Does not know: which functions there are.

use pg_query::NodeEnum;
use pg_query::protobuf::{CoercionForm, FuncCall, Node, WindowDef, a_const::Val};
use sqlparser::ast::{
    DateTimeField, DuplicateTreatment, Expr, ExtractSyntax, Function, FunctionArg, FunctionArgExpr,
    FunctionArgOperator, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, TrimWhereField, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use super::expression::list_of;
use super::place::{Reader, kind, strings};
use crate::error::{Result, SqlError};

/// Bits of a frame, as PostgreSQL's parsenodes.h has them.
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

/// Names of the calls that stand for EXCLUDE behind the keys of PARTITION BY.
pub const EXCLUDE_CURRENT_ROW: &str = "EXCLUDE CURRENT ROW";
/// EXCLUDE GROUP
pub const EXCLUDE_GROUP: &str = "EXCLUDE GROUP";
/// EXCLUDE TIES
pub const EXCLUDE_TIES: &str = "EXCLUDE TIES";

impl Reader<'_> {
    /// A call.
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

    /// A call of a function that has words between its arguments; `None` if it is one like others.
    fn worded(&self, name: &str, f: &FuncCall) -> Result<Option<Expr>> {
        let boxed = |n: usize| self.boxed(f.args.get(n));
        let rest = |n: usize| self.maybe(f.args.get(n)).map(|e| e.map(Box::new));
        Ok(Some(match (name, f.args.len()) {
            ("timezone", 2) => Expr::AtTimeZone { timestamp: boxed(1)?, time_zone: boxed(0)? },
            ("timezone", _) => return Err(SqlError::unsupported("AT LOCAL")),
            ("extract", 2) => Expr::Extract {
                field: DateTimeField::Custom(Ident { quote_style: None, ..Ident::new(text_of(&f.args[0])?) }),
                syntax: ExtractSyntax::From,
                expr: boxed(1)?,
            },
            ("overlay", 3 | 4) => Expr::Overlay {
                expr: boxed(0)?,
                overlay_what: boxed(1)?,
                overlay_from: boxed(2)?,
                overlay_for: rest(3)?,
            },
            ("position", 2) => Expr::Position { expr: boxed(1)?, r#in: boxed(0)? },
            ("substring", 2 | 3) => self.substring(f, false)?,
            ("btrim" | "ltrim" | "rtrim", 1 | 2) => Expr::Trim {
                trim_where: Some(match name {
                    "ltrim" => TrimWhereField::Leading,
                    "rtrim" => TrimWhereField::Trailing,
                    _ => TrimWhereField::Both,
                }),
                trim_what: rest(1)?,
                expr: boxed(0)?,
                trim_characters: None,
            },
            ("xmlexists", _) => return Err(SqlError::unsupported("XML")),
            _ => return Ok(None),
        }))
    }

    fn substring(&self, f: &FuncCall, shorthand: bool) -> Result<Expr> {
        Ok(Expr::Substring {
            expr: self.boxed(f.args.first())?,
            substring_from: self.maybe(f.args.get(1))?.map(Box::new),
            substring_for: self.maybe(f.args.get(2))?.map(Box::new),
            special: !shorthand,
            shorthand,
        })
    }

    /// A call as it is written.
    pub(super) fn plain_call(&self, f: &FuncCall) -> Result<Function> {
        if f.func_variadic {
            return Err(SqlError::unsupported("VARIADIC"));
        }
        let mut args = Vec::with_capacity(f.args.len());
        for arg in &f.args {
            args.push(self.argument(arg)?);
        }
        if f.agg_star {
            args.push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
        }
        let order = self.order_items(&f.agg_order)?;
        let (within_group, order) =
            if f.agg_within_group { (order, Vec::new()) } else { (Vec::new(), order) };
        let clauses = match order.is_empty() {
            true => Vec::new(),
            false => vec![FunctionArgumentClause::OrderBy(order)],
        };
        let duplicate_treatment = f.agg_distinct.then_some(DuplicateTreatment::Distinct);
        Ok(Function {
            args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses }),
            filter: self.maybe(f.agg_filter.as_deref())?.map(Box::new),
            over: f.over.as_deref().map(|over| self.over(over)).transpose()?,
            within_group,
            ..self.function(self.name_of(&f.funcname, f.location)?)
        })
    }

    /// An argument of a call.
    pub(super) fn argument(&self, arg: &Node) -> Result<FunctionArg> {
        Ok(match kind(Some(arg))? {
            NodeEnum::NamedArgExpr(named) => FunctionArg::Named {
                name: self.ident(&named.name, named.location),
                arg: FunctionArgExpr::Expr(self.expr(named.arg.as_deref())?),
                operator: FunctionArgOperator::RightArrow,
            },
            NodeEnum::ColumnRef(c)
                if matches!(c.fields.last().map(|f| &f.node), Some(Some(NodeEnum::AStar(_)))) =>
            {
                let name = self.name_of(&c.fields[..c.fields.len() - 1], c.location)?;
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name))
            }
            _ => FunctionArg::Unnamed(FunctionArgExpr::Expr(self.expr(Some(arg))?)),
        })
    }

    fn over(&self, over: &WindowDef) -> Result<WindowType> {
        // OVER w has a name only; OVER (w ...) refers to one.
        if !over.name.is_empty() {
            return Ok(WindowType::NamedWindow(self.ident(&over.name, over.location)));
        }
        self.window(over).map(WindowType::WindowSpec)
    }

    /// What a window says of itself.
    pub(super) fn window(&self, w: &WindowDef) -> Result<WindowSpec> {
        Ok(WindowSpec {
            window_name: (!w.refname.is_empty()).then(|| self.ident(&w.refname, w.location)),
            partition_by: self.window_keys(w)?,
            order_by: self.order_items(&w.order_clause)?,
            window_frame: self.frame(w)?,
        })
    }

    /// PARTITION BY. The tree has no place for EXCLUDE: it stands behind the keys, as a call without arguments.
    fn window_keys(&self, w: &WindowDef) -> Result<Vec<Expr>> {
        let mut keys = self.exprs(&w.partition_clause)?;
        let written = [
            (frame::EXCLUDE_CURRENT_ROW, EXCLUDE_CURRENT_ROW),
            (frame::EXCLUDE_GROUP, EXCLUDE_GROUP),
            (frame::EXCLUDE_TIES, EXCLUDE_TIES),
        ];
        let found = written.iter().find(|(bit, _)| w.frame_options & bit != 0);
        keys.extend(found.map(|(_, name)| {
            let name = ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', *name))]);
            Expr::Function(Function { args: list_of(Vec::new()), ..self.function(name) })
        }));
        Ok(keys)
    }

    fn frame(&self, w: &WindowDef) -> Result<Option<WindowFrame>> {
        let has = |bits: i32| w.frame_options & bits != 0;
        if !has(frame::NONDEFAULT) {
            return Ok(None);
        }
        let units = match (has(frame::RANGE), has(frame::ROWS)) {
            (true, _) => WindowFrameUnits::Range,
            (_, true) => WindowFrameUnits::Rows,
            _ => WindowFrameUnits::Groups,
        };
        let offset = |node: Option<&Node>| Ok::<_, SqlError>(Some(self.boxed(node)?));
        let (start, end) = (w.start_offset.as_deref(), w.end_offset.as_deref());
        let start_bound = if has(frame::START_UNBOUNDED_PRECEDING) {
            WindowFrameBound::Preceding(None)
        } else if has(frame::START_UNBOUNDED_FOLLOWING) {
            WindowFrameBound::Following(None)
        } else if has(frame::START_OFFSET_PRECEDING) {
            WindowFrameBound::Preceding(offset(start)?)
        } else if has(frame::START_OFFSET_FOLLOWING) {
            WindowFrameBound::Following(offset(start)?)
        } else {
            WindowFrameBound::CurrentRow
        };
        let end_bound = if !has(frame::BETWEEN) {
            None
        } else if has(frame::END_UNBOUNDED_PRECEDING) {
            Some(WindowFrameBound::Preceding(None))
        } else if has(frame::END_UNBOUNDED_FOLLOWING) {
            Some(WindowFrameBound::Following(None))
        } else if has(frame::END_OFFSET_PRECEDING) {
            Some(WindowFrameBound::Preceding(offset(end)?))
        } else if has(frame::END_OFFSET_FOLLOWING) {
            Some(WindowFrameBound::Following(offset(end)?))
        } else {
            Some(WindowFrameBound::CurrentRow)
        };
        Ok(Some(WindowFrame { units, start_bound, end_bound }))
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
