//! A workload that changes the catalog: views, roles, constraints, comments, and columns that are added and
//! dropped.
//!
//! Invariants
//! 1. The model stores each fact of the catalog under the name and with the text that the function `facts`
//!    computes.
//! 2. No object in the catalog refers to an object that does not exist.
//!
//! The workload does not evaluate views and conditions; they are only text here.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_engine::{
    BOOTSTRAP_NAME, Catalog, Check, ColumnDef, ColumnSource, ColumnType, NewView, ObjectId, RoleDef,
    TableDef, Use, Value, ViewColumn,
};

use super::definitions::stored_as;
use super::session::{COLUMNS, Session, primary_key};
use super::{Done, SCHEMA, Worker, text};
use crate::model::{Effect, body};

/// The most views, the most roles, and the most constraints of a table.
const EACH_MAX: u64 = 3;
const EXTRA: &str = "extra";

impl Worker<'_> {
    /// Makes one change of the catalog that does not create or drop a table or an index.
    pub(super) fn describe_one(&mut self, session: &mut Session) -> Done {
        session.start(&self.committed);
        match self.dice(6) {
            0 => self.change_view(session),
            1 => self.change_role(session),
            2 | 3 => self.change_check(session),
            4 => self.change_comment(session),
            _ => self.reshape(session),
        }
    }

    fn some_text(&mut self) -> String {
        let long = if self.dice(6) == 0 { 3000 } else { 60 };
        let len = 10 + self.dice(long);
        body(&mut self.bench.rng, len as usize).to_string()
    }

    fn some_def(&mut self, session: &mut Session) -> Option<Arc<TableDef>> {
        let catalog = session.txn.catalog();
        let tables: Vec<_> =
            catalog.tables().filter(|t| t.schema == SCHEMA && t.name.starts_with('t')).collect();
        let at = self.dice(tables.len().max(1) as u64) as usize;
        tables.get(at).map(|def| Arc::clone(def))
    }

    fn change_view(&mut self, session: &mut Session) -> Done {
        let name = format!("v{}", self.dice(EACH_MAX));
        let thing = format!("view/{name}");
        let old = session.txn.catalog().view(SCHEMA, &name).cloned();
        if let Some(old) = &old
            && self.dice(2) == 0
        {
            session.effects.push(Effect::Fact(thing, None));
            return session.txn.drop_view(old.id).map_err(text);
        }
        let table = self.some_def(session);
        let uses = table.iter().map(|def| Use { object: def.id.into(), columns: vec![0] }).collect();
        let words = self.some_text();
        let columns = vec![ViewColumn { name: "id".into(), type_id: 20, modifier: -1 }];
        let new = NewView {
            schema: SCHEMA.into(),
            name,
            columns,
            text: words.clone(),
            uses,
            security_invoker: None,
        };
        session.effects.push(Effect::Fact(thing, Some(words)));
        match old {
            Some(old) => session.txn.replace_view(old.id, new).map_err(text),
            None => session.txn.create_view(new).map(|_| ()).map_err(text),
        }
    }

    /// Drops the views of a table before the table is dropped.
    pub(super) fn drop_views_of(&mut self, session: &mut Session, def: &TableDef) -> Done {
        let catalog = session.txn.catalog();
        let object: ObjectId = def.id.into();
        for view in catalog.views().filter(|v| v.uses.iter().any(|u| u.object == object)) {
            session.txn.drop_view(view.id).map_err(text)?;
            session.effects.push(Effect::Fact(format!("view/{}", view.name), None));
        }
        Ok(())
    }

    fn change_role(&mut self, session: &mut Session) -> Done {
        let name = format!("r{}", self.dice(EACH_MAX));
        let thing = format!("role/{name}");
        let (words, old) = (self.some_text(), session.txn.catalog().role(&name).map(|role| role.id));
        let told = Effect::Fact(thing.clone(), Some(words.clone()));
        match (old, self.dice(2)) {
            (Some(id), 0) => {
                session.effects.push(Effect::Fact(thing, None));
                session.txn.drop_role(id).map_err(text)
            }
            (Some(id), _) => {
                session.effects.push(told);
                session.txn.alter_role(id, |role| role.password = Some(words.into())).map_err(text)
            }
            (None, _) => {
                session.effects.push(told);
                let role = RoleDef { password: Some(words.into()), ..RoleDef::new(name) };
                session.txn.create_role(role).map(|_| ()).map_err(text)
            }
        }
    }

    fn change_check(&mut self, session: &mut Session) -> Done {
        let Some(def) = self.some_def(session) else { return Ok(()) };
        let name = format!("k{}", self.dice(EACH_MAX));
        let thing = format!("{}/check/{name}", def.name);
        if let Some(check) = def.checks.iter().find(|c| c.name == name) {
            session.txn.drop_constraint(def.id, check.id).map_err(text)?;
            session.effects.push(Effect::Fact(thing, None));
            return Ok(());
        }
        let words = self.some_text();
        let check = Check { id: ObjectId(0), name, text: words.clone(), columns: vec![2] };
        session.txn.add_check(def.id, check).map_err(text)?;
        session.effects.push(Effect::Fact(thing, Some(words)));
        Ok(())
    }

    fn change_comment(&mut self, session: &mut Session) -> Done {
        let Some(def) = self.some_def(session) else { return Ok(()) };
        let words = (self.dice(4) > 0).then(|| self.some_text());
        session.effects.push(Effect::Fact(format!("{}/comment", def.name), words.clone()));
        session.txn.set_about(def.id, |about| about.set_comment(None, words)).map_err(text)
    }

    /// Changes a table: adds or drops a column, or drops the primary key and adds it again. Each change moves
    /// the rows to new trees.
    fn reshape(&mut self, session: &mut Session) -> Done {
        let Some(def) = self.some_def(session) else { return Ok(()) };
        if self.dice(4) == 0 {
            session.txn.drop_primary_key(def.id).map_err(text)?;
            return session.txn.add_primary_key(def.id, primary_key(&def.name)).map(|_| ()).map_err(text);
        }
        let kept = def.columns[..COLUMNS].iter().cloned().enumerate();
        let mut columns: Vec<_> = kept.map(|(n, column)| (column, ColumnSource::Column(n))).collect();
        let adds = def.columns.len() == COLUMNS;
        if adds {
            let column = ColumnDef::new(EXTRA, ColumnType::Int4);
            columns.push((column, ColumnSource::Value(Value::Int4(7))));
        }
        session.txn.rewrite_columns(def.id, columns).map_err(text)?;
        let extra = adds.then(|| EXTRA.to_owned());
        session.effects.push(Effect::Fact(format!("{}/columns", def.name), extra));
        Ok(())
    }
}

/// Returns the facts in the catalog, without tables and indexes.
pub(super) fn facts(catalog: &Catalog) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    facts.extend(catalog.views().map(|view| (format!("view/{}", view.name), view.text.clone())));
    for role in catalog.roles().filter(|role| role.name != BOOTSTRAP_NAME && !role.is_predefined()) {
        let password = role.password.as_deref().unwrap_or_default();
        facts.push((format!("role/{}", role.name), password.to_owned()));
    }
    for def in catalog.tables().filter(|def| def.schema == SCHEMA) {
        let own = |what: &str| format!("{}/{what}", def.name);
        facts.extend(def.checks.iter().map(|c| (own(&format!("check/{}", c.name)), c.text.clone())));
        for key in &def.foreign_keys {
            let parent = catalog.table_by_id(key.parent).map_or_else(String::new, |t| t.name.clone());
            facts.push((own(&format!("key/{}", key.name)), parent));
        }
        facts.extend(stored_as(def.storage).map(|how| (own("storage"), how)));
        let comment = catalog.about(def.id).and_then(|about| about.comment(None));
        facts.extend(comment.map(|text| (own("comment"), text.to_owned())));
        if def.columns.len() > COLUMNS {
            let names: Vec<&str> = def.columns[COLUMNS..].iter().map(|c| c.name.as_str()).collect();
            facts.push((own("columns"), names.join(",")));
        }
    }
    facts
}

/// Returns names of objects that do not exist, and objects that are not found by their names.
pub(super) fn contradictions(catalog: &Catalog) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known: BTreeSet<ObjectId> = catalog.schemas().map(|s| s.id).collect();
    known.extend(catalog.views().map(|v| v.id));
    known.extend(catalog.roles().map(|r| r.id));
    known.extend(catalog.databases().map(|d| d.id));
    known.extend(catalog.sequences().map(|s| ObjectId::from(s.id)));
    for def in catalog.tables() {
        known.insert(def.id.into());
        known.extend(def.indexes.iter().map(|i| ObjectId::from(i.id)));
        known.extend(def.checks.iter().map(|c| c.id).chain(def.foreign_keys.iter().map(|k| k.id)));
        if catalog.table(&def.schema, &def.name).is_none_or(|found| found.id != def.id) {
            wrong.push(format!("table {} is not found by its name", def.name));
        }
    }
    for view in catalog.views() {
        if catalog.view(&view.schema, &view.name).is_none_or(|found| found.id != view.id) {
            wrong.push(format!("view {} is not found by its name", view.name));
        }
        if !view.uses.iter().all(|u| known.contains(&u.object)) {
            wrong.push(format!("view {} uses what is not there", view.name));
        }
    }
    let abouts = catalog.abouts().filter(|about| !known.contains(&about.object));
    wrong.extend(abouts.map(|about| format!("something is kept about object {}", about.object.0)));
    wrong
}
