//! Runs ALTER VIEW ... SET and RESET.
//!
//! This module does not know what a view's options do (`crate::rights`, `crate::bind::view`).

use varve_engine::NewView;

use super::Session;
use super::roles::Done;
use crate::error::{Result, SqlError, SqlState};
use crate::names::undefined_table;
use crate::rights::{Kind, Object};
use crate::sink::Severity;
use crate::utility::view::ViewOptions;

impl Session {
    /// Changes the options of a view.
    pub(super) fn view_options(&mut self, options: &ViewOptions) -> Result<&'static str> {
        let tag = self.in_turns("ALTER VIEW", &mut |session| session.changed_view(options))?;
        // Cached plans were made with the old options.
        if !std::mem::replace(&mut self.defines, true) {
            self.plans.clear();
        }
        Ok(tag)
    }

    fn changed_view(&mut self, options: &ViewOptions) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        self.follow_catalog(&catalog);
        let (schema, name) = self.facts.path.find(&catalog, &options.view)?;
        let Some(view) = catalog.view(&schema, &name).cloned() else {
            if catalog.resolve(&schema, &name).is_some() {
                let message = format!("\"{name}\" is not a view");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
            }
            if !options.if_exists {
                return Err(undefined_table(&options.view).into());
            }
            let message = format!("relation \"{name}\" does not exist, skipping");
            self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
            return Ok("ALTER VIEW");
        };
        let object = Object::new(view.id, Kind::View, &name);
        if !holder.owns(&catalog, &object) {
            return Err(object.not_owned().into());
        }
        let new = NewView {
            schema,
            name,
            columns: view.columns.clone(),
            text: view.text.clone(),
            uses: view.uses.clone(),
            security_invoker: options.security_invoker,
        };
        self.transaction()?.replace_view(view.id, new)?;
        Ok("ALTER VIEW")
    }
}
