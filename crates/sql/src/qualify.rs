//! Adds schemas to the names in a command before the command runs.
//!
//! Invariants
//! 1. If the search path is only `public`, nothing is copied or changed.
//! 2. Queries inside a definition are left as they are, because the binder uses the search path for them.
//!
//! This module does not know what the commands do.

use std::borrow::Cow;

use varve_engine::Catalog;

use crate::ast::{
    ColumnAction, ColumnDefinition, Comment, CommentKind, Constraint, ConstraintKind, CreateTable,
    Definition, DropKind, Ident, KeptExpr, ObjectName, TableAction,
};
use crate::copy::CopyWhat;
use crate::error::Result;
use crate::names::{fold, undefined_table};
use crate::parse;
use crate::path::{NOWHERE, Path, has_schema};
use crate::system::names::quoted;
use crate::utility::Utility;
use crate::utility::role::{Objects, RoleCommand};

impl Path {
    /// Returns a definition whose names have their schemas. The error is 3F000 if there is no schema for the
    /// new object.
    pub fn definition<'s>(
        &self,
        catalog: &Catalog,
        statement: &'s Definition,
    ) -> Result<Cow<'s, Definition>> {
        if self.is_public() {
            return Ok(Cow::Borrowed(statement));
        }
        let mut statement = statement.clone();
        let names = Names { path: self, catalog };
        match &mut statement {
            Definition::CreateTable(t) => names.create_table(t)?,
            Definition::CreateTableAs(t) => names.place(&mut t.name)?,
            Definition::CreateIndex(i) => names.settle(&mut i.table),
            Definition::CreateView(v) => names.place(&mut v.name)?,
            Definition::CreateSequence(s) => names.place(&mut s.name)?,
            Definition::CreateSchema(_) => {}
            Definition::AlterTable(a) => {
                names.settle(&mut a.name);
                a.actions.iter_mut().try_for_each(|action| names.action(action))?;
            }
            Definition::AlterSequence(s) => names.settle(&mut s.name),
            Definition::RenameIndex(r) => names.settle(&mut r.name),
            Definition::MoveIndex(m) => names.settle(&mut m.name),
            Definition::Comment(c) => names.commented(c),
            Definition::Truncate(t) => t.tables.iter_mut().for_each(|name| names.settle(name)),
            Definition::Drop(d) if d.kind == DropKind::Schema => {}
            Definition::Drop(d) => d.names.iter_mut().for_each(|name| names.settle(name)),
        }
        Ok(Cow::Owned(statement))
    }

    /// Returns a command whose names have their schemas. The error is 42P01 for objects that do not exist.
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
    /// Adds the schema to the name of an existing object. If no schema has it, adds a schema that never
    /// exists.
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

    /// Adds the schema to the name of a new object.
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
            self.settle(&mut of.parent);
        }
        // A table that refers to itself does not exist yet.
        let mut parent = |name: &mut ObjectName| match plain(name) {
            Some(last) if Some(&last) == own.as_ref() => *name = t.name.clone(),
            _ => self.settle(name),
        };
        t.columns.iter_mut().try_for_each(|column| self.column(column, &mut parent))?;
        t.constraints.iter_mut().try_for_each(|constraint| self.constraint(constraint, &mut parent))
    }

    fn column(&self, column: &mut ColumnDefinition, parent: &mut dyn FnMut(&mut ObjectName)) -> Result<()> {
        column.constraints.iter_mut().try_for_each(|constraint| self.constraint(constraint, parent))
    }

    fn constraint(&self, c: &mut Constraint, parent: &mut dyn FnMut(&mut ObjectName)) -> Result<()> {
        match &mut c.kind {
            ConstraintKind::ForeignKey(key) => parent(&mut key.table),
            ConstraintKind::Default(default) => self.kept_default(default)?,
            _ => {}
        }
        Ok(())
    }

    fn action(&self, action: &mut TableAction) -> Result<()> {
        let mut parent = |name: &mut ObjectName| self.settle(name);
        match action {
            TableAction::AddColumn { column, .. } => self.column(column, &mut parent),
            TableAction::AddConstraint(constraint) => self.constraint(constraint, &mut parent),
            TableAction::AlterColumn { action: ColumnAction::SetDefault(default), .. } => {
                self.kept_default(default)
            }
            _ => Ok(()),
        }
    }

    fn commented(&self, c: &mut Comment) {
        let name = &mut c.name;
        match c.kind {
            CommentKind::Column | CommentKind::Constraint => {
                let Some(column) = name.0.pop() else { return };
                self.settle(name);
                name.0.push(column);
            }
            CommentKind::Schema | CommentKind::Role | CommentKind::Database => {}
            _ => self.settle(name),
        }
    }

    /// Adds schemas to a default, which is stored as text. A sequence in `nextval('s')` is the one that is
    /// found now, at any depth of the expression.
    fn kept_default(&self, default: &mut KeptExpr) -> Result<()> {
        let text = self.with_schemas(&default.text)?;
        if text != default.text {
            *default = KeptExpr { expr: parse::expression(&text)?, text };
        }
        Ok(())
    }

    /// Returns the text with schemas added to the names of sequences.
    fn with_schemas(&self, text: &str) -> Result<String> {
        let tokens = parse::tokens(text)?;
        let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
        for three in tokens.windows(3) {
            let [verb, open, argument] = three else { continue };
            let takes = verb.name().is_some_and(|name| SEQUENCE_FUNCTIONS.contains(&name.as_str()));
            let name = argument.string().filter(|name| takes && open.is("(") && !has_schema(name));
            let Some(name) = name else { continue };
            let (schema, last) = self.path.find_text(self.catalog, &name);
            if schema != NOWHERE {
                let name = format!("{}.{}", quoted(&schema), quoted(&last));
                out.push_str(&text[copied..argument.start]);
                out.push_str(&format!("'{}'", name.replace('\'', "''")));
                copied = argument.end;
            }
        }
        out.push_str(&text[copied..]);
        Ok(out)
    }
}

/// Functions whose first argument names a sequence.
const SEQUENCE_FUNCTIONS: [&str; 3] = ["nextval", "currval", "setval"];

/// Returns a name that has no schema, or `None` if it has one.
fn plain(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => Some(fold(part)),
        _ => None,
    }
}

fn qualify(name: &mut ObjectName, schema: &str) {
    name.0.insert(0, Ident::new(schema));
}
