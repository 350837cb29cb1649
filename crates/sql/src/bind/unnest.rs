//! Binds functions in FROM that make rows from arrays, such as `unnest`. Other functions that return rows are
//! handled in the same way: they first compute one array for each column.
//!
//! Arrays that depend on other items of FROM (LATERAL) are not handled here, nor are these functions in a
//! select list.

use super::Binder;
use super::bound::Bound;
use super::relations::{BoundFrom, named};
use super::scope::Scope;
use super::set_functions::ArrayColumn;
use crate::ast;
use crate::error::{Result, SqlError, SqlState};
use crate::names::fold;
use crate::plan::{Source, Unnest};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Binds a function in FROM whose columns are computed as arrays.
    pub(super) fn set_returning(
        &mut self,
        (function, made_of): (&str, &[ArrayColumn]),
        args: &[ast::FunctionArg],
        numbered: bool,
        alias: Option<&ast::TableAlias>,
        at: Option<u32>,
    ) -> Result<BoundFrom> {
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let argument = |a| self.expression(super::call::plain_argument(a)?, &mut scope);
        let arguments = args.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for ArrayColumn { name, by, ty } in made_of {
            let array = self.call_function(by, arguments.clone(), at);
            let array =
                array.map_err(|e| SqlError { message: e.message.replace(by, function).into(), ..e })?;
            let element = ty.or(array.t.ty.element()).ok_or_else(|| SqlError::internal("no array"))?;
            exprs.push(array.expr);
            let only = alias.filter(|_| made_of.len() == 1);
            columns.push((only.map_or((*name).to_owned(), |a| fold(&a.name)), Typed::plain(element)));
        }
        if numbered {
            columns.push(("ordinality".to_owned(), Typed::plain(Ty::Int8)));
        }
        let types = columns.iter().map(|(_, t)| t.ty).collect();
        let source = Source::Unnest(Box::new(Unnest { arrays: exprs.into(), numbered, types }));
        Ok(BoundFrom::one(source, named(function, columns, &[], alias)?))
    }

    /// Binds `unnest(a, b, ...)` in FROM.
    pub(super) fn unnest(
        &mut self,
        arrays: &[ast::FunctionArg],
        numbered: bool,
        alias: Option<&ast::TableAlias>,
    ) -> Result<BoundFrom> {
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let mut exprs = Vec::with_capacity(arrays.len());
        let mut columns: Vec<(String, Typed)> = Vec::with_capacity(arrays.len() + 1);
        let only = alias.filter(|_| arrays.len() == 1).map_or("unnest".to_owned(), |a| fold(&a.name));
        for written in arrays {
            let array = self.expression(super::call::plain_argument(written)?, &mut scope)?;
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
        Ok(BoundFrom::one(source, named("unnest", columns, &[], alias)?))
    }

    /// Binds the arguments of `generate_subscripts(array, dimension)`: returns the bounds of a series.
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
