//! Functions in FROM that take arrays apart, and others that return rows: their columns are made as arrays first.
//!
//! Does not know: arrays that hang on other items of FROM (LATERAL); these functions in a select list.

use sqlparser::ast;

use super::from::{From, named};
use super::scope::Scope;
use super::{Binder, Bound, fold};
use crate::error::{Result, SqlError, SqlState};
use crate::plan::{Source, Unnest};
use crate::ty::{Reg, Ty, Typed};

/// A function that returns rows, as the functions that give its columns as arrays.
pub struct SetFunction {
    /// Its name.
    pub name: &'static str,
    /// For each column its name, the function that gives the array of its values, and its type where it is not the
    /// array's.
    pub columns: &'static [(&'static str, &'static str, Option<Ty>)],
}

const CLASS: Option<Ty> = Some(Ty::Reg(Reg::Class));

const SET_FUNCTIONS: [SetFunction; 4] = [
    SetFunction {
        name: "pg_partition_ancestors",
        columns: &[("relid", "pg_partition_ancestors.relid", CLASS)],
    },
    SetFunction {
        name: "pg_partition_tree",
        columns: &[
            ("relid", "pg_partition_tree.relid", CLASS),
            ("parentrelid", "pg_partition_tree.parentrelid", CLASS),
            ("isleaf", "pg_partition_tree.isleaf", None),
            ("level", "pg_partition_tree.level", None),
        ],
    },
    SetFunction { name: "json_array_elements", columns: &[("value", "json_array_elements.value", None)] },
    SetFunction {
        name: "json_array_elements_text",
        columns: &[("value", "json_array_elements_text.value", None)],
    },
];

/// The function of this name, if it is one of `SET_FUNCTIONS`; others are in `sets`.
pub fn set_function(name: &str) -> Option<&'static SetFunction> {
    SET_FUNCTIONS.iter().find(|f| f.name == name)
}

impl Binder<'_> {
    /// A function of `SET_FUNCTIONS` in FROM.
    pub(super) fn set_returning(
        &mut self,
        function: &'static SetFunction,
        args: &[ast::FunctionArg],
        numbered: bool,
        alias: Option<&ast::TableAlias>,
        at: Option<u32>,
    ) -> Result<From> {
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let argument = |a| self.expression(super::function::plain_argument(a)?, &mut scope);
        let arguments = args.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for (column, by, ty) in function.columns {
            let array = self.call_function(by, arguments.clone(), at);
            let array =
                array.map_err(|e| SqlError { message: e.message.replace(by, function.name).into(), ..e })?;
            let element = ty.or(array.t.ty.element()).ok_or_else(|| SqlError::internal("no array"))?;
            exprs.push(array.expr);
            let name =
                alias.filter(|_| function.columns.len() == 1).map_or((*column).to_owned(), |a| fold(&a.name));
            columns.push((name, Typed::plain(element)));
        }
        if numbered {
            columns.push(("ordinality".to_owned(), Typed::plain(Ty::Int8)));
        }
        let types = columns.iter().map(|(_, t)| t.ty).collect();
        let source = Source::Unnest(Box::new(Unnest { arrays: exprs.into(), numbered, types }));
        Ok(From::one(source, named(function.name, columns, &[], alias)?))
    }

    /// unnest(a, b, ...) in FROM.
    pub(super) fn unnest(
        &mut self,
        arrays: &[ast::Expr],
        numbered: bool,
        alias: Option<&ast::TableAlias>,
    ) -> Result<From> {
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let mut exprs = Vec::with_capacity(arrays.len());
        let mut columns: Vec<(String, Typed)> = Vec::with_capacity(arrays.len() + 1);
        let only = alias.filter(|_| arrays.len() == 1).map_or("unnest".to_owned(), |a| fold(&a.name));
        for written in arrays {
            let array = self.expression(written, &mut scope)?;
            let element = array.t.ty.element().ok_or_else(|| {
                let message = format!("function unnest({}) does not exist", array.t.ty.name());
                SqlError::new(SqlState::UNDEFINED_FUNCTION, message).at(array.at)
            })?;
            exprs.push(array.expr);
            columns.push((only.clone(), Typed::plain(element)));
        }
        if numbered {
            columns.push(("ordinality".to_owned(), Typed::plain(Ty::Int8)));
        }
        let types = columns.iter().map(|(_, t)| t.ty).collect();
        let source = Source::Unnest(Box::new(Unnest { arrays: exprs.into(), numbered, types }));
        Ok(From::one(source, named("unnest", columns, &[], alias)?))
    }

    /// generate_subscripts(array, dimension) in FROM: a series.
    pub(super) fn subscripts(&mut self, bounds: Vec<Bound>, at: Option<u32>) -> Result<Vec<Bound>> {
        let [array, dimension] = <[Bound; 2]>::try_from(bounds)
            .map_err(|_| SqlError::unsupported("generate_subscripts with these arguments").at(at))?;
        let mut edge = |name: &str| {
            let arguments = [array.clone(), dimension.clone()];
            let call = self.array_function(name, &arguments, at);
            call.unwrap_or_else(|| {
                let message =
                    format!("function generate_subscripts({}, integer) does not exist", array.t.ty.name());
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).at(at))
            })
        };
        Ok(vec![edge("array_lower")?, edge("array_upper")?])
    }
}
