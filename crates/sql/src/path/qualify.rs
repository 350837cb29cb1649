//! Names of a command get their schemas, before it runs.
//!
//! Invariants
//! 1. With the path of `public` alone nothing is copied or changed.
//! 2. Queries inside a definition are left as they are: who binds them knows the path.
//!
//! Does not know: what the commands do.

use std::borrow::Cow;

use sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, CommentObject, CreateTable, Expr,
    Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart, ObjectType,
    Statement, TableConstraint, Value,
};
use varve_engine::Catalog;

use super::{NOWHERE, Path, has_schema};
use crate::bind::{fold, undefined_table};
use crate::copy::CopyWhat;
use crate::error::{Result, SqlError};
use crate::system::names::quoted;
use crate::utility::Utility;
use crate::utility::role::{Objects, RoleCommand};

impl Path {
    /// A definition whose names have their schemas; 3F000 if there is none to make it in.
    pub fn definition<'s>(&self, catalog: &Catalog, statement: &'s Statement) -> Result<Cow<'s, Statement>> {
        if self.is_public() {
            return Ok(Cow::Borrowed(statement));
        }
        let mut statement = statement.clone();
        let names = Names { path: self, catalog };
        match &mut statement {
            Statement::CreateTable(t) => names.create_table(t)?,
            Statement::CreateIndex(i) => names.settle(&mut i.table_name),
            Statement::AlterTable(a) => {
                names.settle(&mut a.name);
                a.operations.iter_mut().try_for_each(|operation| names.operation(operation))?;
            }
            Statement::Comment { object_type, object_name, .. } => names.commented(*object_type, object_name),
            Statement::Truncate(t) => t.table_names.iter_mut().for_each(|t| names.settle(&mut t.name)),
            Statement::CreateSequence { name, .. } => names.place(name)?,
            Statement::CreateView(v) => names.place(&mut v.name)?,
            Statement::Drop { object_type, names: dropped, .. } if *object_type != ObjectType::Schema => {
                dropped.iter_mut().for_each(|name| names.settle(name));
            }
            _ => {}
        }
        Ok(Cow::Owned(statement))
    }

    /// A command whose names have their schemas; 42P01 for what there is not.
    pub fn command<'s>(&self, catalog: &Catalog, command: &'s Utility) -> Result<Cow<'s, Utility>> {
        if self.is_public() {
            return Ok(Cow::Borrowed(command));
        }
        let names = Names { path: self, catalog };
        let mut command = command.clone();
        match &mut command {
            Utility::Maintain(m) => m.tables.iter_mut().try_for_each(|(name, _)| names.existing(name))?,
            Utility::Lock(lock) => lock.tables.iter_mut().try_for_each(|name| names.existing(name))?,
            Utility::Copy(copy) => {
                if let CopyWhat::Table(name, _) = &mut copy.what {
                    names.existing(name)?;
                }
            }
            Utility::Role(role) => {
                if let RoleCommand::Objects(grant) = &mut **role
                    && let Objects::Tables(list) | Objects::Sequences(list) = &mut grant.objects
                {
                    list.iter_mut().try_for_each(|name| names.existing(name))?;
                }
            }
            _ => {}
        }
        Ok(Cow::Owned(command))
    }
}

struct Names<'p> {
    path: &'p Path,
    catalog: &'p Catalog,
}

impl Names<'_> {
    /// The name of something that there is: the schema in which it is found, or one that there never is.
    fn settle(&self, name: &mut ObjectName) {
        let Some(last) = plain(name) else { return };
        qualify(name, self.path.schema_of(self.catalog, &last).unwrap_or(NOWHERE));
    }

    fn existing(&self, name: &mut ObjectName) -> Result<()> {
        let Some(last) = plain(name) else { return Ok(()) };
        let schema = self.path.schema_of(self.catalog, &last).ok_or_else(|| undefined_table(name))?;
        qualify(name, schema);
        Ok(())
    }

    /// The name of something new.
    fn place(&self, name: &mut ObjectName) -> Result<()> {
        if let Some(last) = plain(name) {
            qualify(name, self.path.place(&last)?);
        }
        Ok(())
    }

    fn create_table(&self, t: &mut CreateTable) -> Result<()> {
        let own = plain(&t.name);
        self.place(&mut t.name)?;
        if let Some(of) = &mut t.partition_of {
            self.settle(of);
        }
        // A table that refers to itself is not there yet.
        let mut parent = |name: &mut ObjectName| match plain(name) {
            Some(last) if Some(&last) == own.as_ref() => *name = t.name.clone(),
            _ => self.settle(name),
        };
        t.columns.iter_mut().try_for_each(|column| self.column(column, &mut parent))?;
        t.constraints.iter_mut().for_each(|constraint| constraint_names(constraint, &mut parent));
        Ok(())
    }

    fn column(&self, column: &mut ColumnDef, parent: &mut dyn FnMut(&mut ObjectName)) -> Result<()> {
        for option in &mut column.options {
            match &mut option.option {
                ColumnOption::ForeignKey(key) => parent(&mut key.foreign_table),
                ColumnOption::Default(e) => self.default(e)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn operation(&self, operation: &mut AlterTableOperation) -> Result<()> {
        let mut parent = |name: &mut ObjectName| self.settle(name);
        match operation {
            AlterTableOperation::AddColumn { column_def, .. } => self.column(column_def, &mut parent)?,
            AlterTableOperation::AddConstraint { constraint, .. } => {
                constraint_names(constraint, &mut parent);
            }
            AlterTableOperation::AlterColumn { op: AlterColumnOperation::SetDefault { value }, .. } => {
                self.default(value)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn commented(&self, kind: CommentObject, name: &mut ObjectName) {
        match kind {
            CommentObject::Column => {
                let Some(column) = name.0.pop() else { return };
                self.settle(name);
                name.0.push(column);
            }
            CommentObject::Schema | CommentObject::Database => {}
            _ => self.settle(name),
        }
    }

    /// A default is kept as text: the sequence in `nextval('s')` is the one that is found now, however deep it stands.
    fn default(&self, e: &mut Expr) -> Result<()> {
        match e {
            Expr::Nested(inner) | Expr::Cast { expr: inner, .. } | Expr::UnaryOp { expr: inner, .. } => {
                self.default(inner)
            }
            Expr::BinaryOp { left, right, .. } => {
                self.default(left)?;
                self.default(right)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                let branches = conditions.iter_mut().flat_map(|when| [&mut when.condition, &mut when.result]);
                let ends = operand.iter_mut().chain(else_result).map(Box::as_mut);
                branches.chain(ends).try_for_each(|part| self.default(part))
            }
            Expr::Array(array) => array.elem.iter_mut().try_for_each(|part| self.default(part)),
            Expr::Function(f) if is_sequence_function(f) => {
                if let Some(first) = arguments(f).next() {
                    self.sequence(first);
                }
                Ok(())
            }
            Expr::Function(f) => arguments(f).try_for_each(|part| self.default(part)),
            Expr::Value(_) => Ok(()),
            other if names_a_sequence(other) => Err(SqlError::unsupported(
                "a sequence without a schema in this kind of default, under a search path",
            )),
            _ => Ok(()),
        }
    }

    fn sequence(&self, e: &mut Expr) {
        match e {
            Expr::Cast { expr, .. } | Expr::Nested(expr) => self.sequence(expr),
            Expr::Value(value) => {
                let Value::SingleQuotedString(text) = &mut value.value else { return };
                if !has_schema(text) {
                    let (schema, last) = self.path.find_text(self.catalog, text);
                    if schema != NOWHERE {
                        *text = format!("{}.{}", quoted(&schema), quoted(&last));
                    }
                }
            }
            _ => {}
        }
    }
}

fn constraint_names(constraint: &mut TableConstraint, parent: &mut dyn FnMut(&mut ObjectName)) {
    if let TableConstraint::ForeignKey(key) = constraint {
        parent(&mut key.foreign_table);
    }
}

/// The expressions that a function is called with.
fn arguments(f: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let list = match &mut f.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    list.iter_mut().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(e), .. }
        | FunctionArg::ExprNamed { arg: FunctionArgExpr::Expr(e), .. } => Some(e),
        FunctionArg::Unnamed(_) | FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => None,
    })
}

/// Goes by the text, so it finds too many rather than too few.
fn names_a_sequence(e: &Expr) -> bool {
    let text = e.to_string().to_ascii_lowercase();
    SEQUENCE_FUNCTIONS.iter().any(|name| text.contains(name))
}

const SEQUENCE_FUNCTIONS: [&str; 3] = ["nextval", "currval", "setval"];

fn is_sequence_function(f: &Function) -> bool {
    let last = f.name.0.last().and_then(ObjectNamePart::as_ident).map(fold);
    last.is_some_and(|name| SEQUENCE_FUNCTIONS.contains(&&*name))
}

/// A name without its schema.
fn plain(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(fold),
        _ => None,
    }
}

fn qualify(name: &mut ObjectName, schema: &str) {
    name.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', schema)));
}
