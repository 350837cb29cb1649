//! Encoding of constraints, partitions, views, roles and facts about objects: their fields, in the order of
//! the code.
//!
//! `codec.rs` encodes the definition around them, and has the layout of numbers, texts and lists.

use super::codec::{Reader, Writer};
use super::databases::{DatabaseDef, POSTGRES};
use super::objects::{
    About, Action, Bound, Check, Comment, Edge, ForeignKey, Grant, Identity, Membership, Part,
    PartitionMethod, Partitions, Rights, RoleDef, Use, ViewColumn, ViewDef,
};
use crate::object_ids::{ObjectId, TableId};

/// Tag of a view's option: a flag follows.
const VIEW_SECURITY_INVOKER: u8 = 1;

const ACTIONS: [Action; 5] =
    [Action::NoAction, Action::Restrict, Action::Cascade, Action::SetNull, Action::SetDefault];

/// A flag of a foreign key in addition to that of INITIALLY DEFERRED.
const MATCHES_FULL: u8 = 2;

impl Writer {
    pub(super) fn id(&mut self, id: ObjectId) {
        self.word(id.0);
    }

    pub(super) fn check(&mut self, def: &Check) {
        self.id(def.id);
        self.text(&def.name);
        self.text(&def.text);
        self.ordinals(&def.columns);
    }

    pub(super) fn foreign_key(&mut self, def: &ForeignKey) {
        self.id(def.id);
        self.text(&def.name);
        self.ordinals(&def.columns);
        self.word(def.parent.0);
        self.ordinals(&def.parent_columns);
        self.action(def.on_delete);
        self.action(def.on_update);
        self.flag(def.deferrable);
        self.byte(u8::from(def.initially_deferred) | if def.match_full { MATCHES_FULL } else { 0 });
    }

    fn action(&mut self, action: Action) {
        let number = ACTIONS.iter().position(|a| *a == action).unwrap_or_default();
        self.byte(number as u8);
    }

    pub(super) fn partitions(&mut self, def: &Partitions) {
        self.byte(match def.method {
            PartitionMethod::Hash => 1,
            PartitionMethod::Range => 2,
        });
        self.ordinals(&def.columns);
        self.list(def.parts.iter(), |out, part: &Part| {
            out.id(part.id);
            out.text(&part.schema);
            out.text(&part.name);
            out.bound(&part.bound);
        });
    }

    fn bound(&mut self, bound: &Bound) {
        match bound {
            Bound::Hash { modulus, remainder } => {
                self.byte(1);
                self.word(*modulus);
                self.word(*remainder);
            }
            Bound::Range { from, to } => {
                self.byte(2);
                self.list(from.iter(), Self::edge);
                self.list(to.iter(), Self::edge);
            }
            Bound::Default => self.byte(3),
        }
    }

    fn edge(&mut self, edge: &Edge) {
        match edge {
            Edge::Least => self.byte(1),
            Edge::At(value) => {
                self.byte(2);
                self.value(value);
            }
            Edge::Greatest => self.byte(3),
        }
    }

    pub(super) fn identity(&mut self, identity: Option<Identity>) {
        self.byte(match identity {
            None => 0,
            Some(Identity::Always) => 1,
            Some(Identity::ByDefault) => 2,
        });
    }

    pub(super) fn view(&mut self, def: &ViewDef) {
        self.id(def.id);
        self.text(&def.schema);
        self.text(&def.name);
        self.list(def.columns.iter(), |out, column: &ViewColumn| {
            out.text(&column.name);
            out.word(column.type_id);
            out.long(i64::from(column.modifier));
        });
        self.text(&def.text);
        self.list(def.uses.iter(), |out, used: &Use| {
            out.id(used.object);
            out.ordinals(&used.columns);
        });
        // If the option was not set, nothing is written, as before views had options.
        if let Some(is_set) = def.security_invoker {
            self.byte(VIEW_SECURITY_INVOKER);
            self.flag(is_set);
        }
    }

    pub(super) fn role(&mut self, def: &RoleDef) {
        self.id(def.id);
        self.text(&def.name);
        let flags = [
            def.is_superuser,
            def.inherits,
            def.makes_roles,
            def.makes_databases,
            def.may_log_in,
            def.replicates,
            def.bypasses_row_security,
        ];
        flags.into_iter().for_each(|flag| self.flag(flag));
        self.long(i64::from(def.connection_limit));
        self.optional(def.password.as_ref(), |out, password| out.text(password));
        self.optional(def.valid_until_us, Self::long);
        self.list(def.member_of.iter(), |out, member: &Membership| {
            out.id(member.role);
            out.flag(member.is_admin);
        });
    }

    pub(super) fn database(&mut self, def: &DatabaseDef) {
        self.id(def.id);
        self.text(&def.name);
        self.long(i64::from(def.connection_limit));
        self.flag(def.allows_connections);
        self.flag(def.is_template);
        self.list(def.settings.iter(), |out, (name, value): &(String, String)| {
            out.text(name);
            out.text(value);
        });
    }

    pub(super) fn about(&mut self, def: &About) {
        self.id(def.id);
        self.id(def.object);
        self.id(def.owner);
        self.optional(def.grants.as_ref(), |out, grants| out.list(grants.iter(), Self::grant));
        self.list(def.comments.iter(), |out, comment: &Comment| {
            out.optional(comment.column, Self::short);
            out.text(&comment.text);
        });
    }

    fn grant(&mut self, grant: &Grant) {
        self.optional(grant.grantee, Self::id);
        self.id(grant.grantor);
        self.short(usize::from(grant.rights.0));
        self.short(usize::from(grant.grantable.0));
    }
}

impl Reader<'_> {
    pub(super) fn id(&mut self) -> Option<ObjectId> {
        self.word().map(ObjectId)
    }

    pub(super) fn check(&mut self) -> Option<Check> {
        Some(Check {
            id: self.id()?,
            name: self.text()?,
            text: self.text()?,
            columns: self.list(Self::short)?,
        })
    }

    pub(super) fn foreign_key(&mut self) -> Option<ForeignKey> {
        let mut key = ForeignKey {
            id: self.id()?,
            name: self.text()?,
            columns: self.list(Self::short)?,
            parent: TableId(self.word()?),
            parent_columns: self.list(Self::short)?,
            on_delete: self.action()?,
            on_update: self.action()?,
            deferrable: self.flag()?,
            initially_deferred: false,
            match_full: false,
        };
        let flags = self.byte()?;
        key.initially_deferred = flags & 1 != 0;
        key.match_full = flags & MATCHES_FULL != 0;
        (flags & !(1 | MATCHES_FULL) == 0).then_some(key)
    }

    fn action(&mut self) -> Option<Action> {
        ACTIONS.get(usize::from(self.byte()?)).copied()
    }

    pub(super) fn partitions(&mut self) -> Option<Partitions> {
        let method = match self.byte()? {
            1 => PartitionMethod::Hash,
            2 => PartitionMethod::Range,
            _ => return None,
        };
        Some(Partitions { method, columns: self.list(Self::short)?, parts: self.list(Self::part)? })
    }

    fn part(&mut self) -> Option<Part> {
        Some(Part { id: self.id()?, schema: self.text()?, name: self.text()?, bound: self.bound()? })
    }

    fn bound(&mut self) -> Option<Bound> {
        Some(match self.byte()? {
            1 => Bound::Hash { modulus: self.word()?, remainder: self.word()? },
            2 => Bound::Range { from: self.list(Self::edge)?, to: self.list(Self::edge)? },
            3 => Bound::Default,
            _ => return None,
        })
    }

    fn edge(&mut self) -> Option<Edge> {
        Some(match self.byte()? {
            1 => Edge::Least,
            2 => Edge::At(self.value()?),
            3 => Edge::Greatest,
            _ => return None,
        })
    }

    pub(super) fn identity(&mut self) -> Option<Option<Identity>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(Identity::Always)),
            2 => Some(Some(Identity::ByDefault)),
            _ => None,
        }
    }

    fn small(&mut self) -> Option<i32> {
        i32::try_from(self.long()?).ok()
    }

    pub(super) fn view(&mut self) -> Option<ViewDef> {
        Some(ViewDef {
            id: self.id()?,
            database: POSTGRES,
            schema: self.text()?,
            name: self.text()?,
            columns: self.list(|input| {
                let (name, type_id) = (input.text()?, input.word()?);
                Some(ViewColumn { name, type_id, modifier: input.small()? })
            })?,
            text: self.text()?,
            uses: self.list(|input| Some(Use { object: input.id()?, columns: input.list(Self::short)? }))?,
            security_invoker: self.view_option()?,
        })
    }

    /// Returns the option at the end of a view, if one is there.
    fn view_option(&mut self) -> Option<Option<bool>> {
        if self.is_at_end() {
            return Some(None);
        }
        match self.byte()? {
            VIEW_SECURITY_INVOKER => self.flag().map(Some),
            _ => None,
        }
    }

    pub(super) fn role(&mut self) -> Option<RoleDef> {
        Some(RoleDef {
            id: self.id()?,
            name: self.text()?,
            is_superuser: self.flag()?,
            inherits: self.flag()?,
            makes_roles: self.flag()?,
            makes_databases: self.flag()?,
            may_log_in: self.flag()?,
            replicates: self.flag()?,
            bypasses_row_security: self.flag()?,
            connection_limit: self.small()?,
            password: self.optional(Self::text)?.map(Into::into),
            valid_until_us: self.optional(Self::long)?,
            member_of: self.list(|input| Some(Membership { role: input.id()?, is_admin: input.flag()? }))?,
        })
    }

    pub(super) fn database(&mut self) -> Option<DatabaseDef> {
        Some(DatabaseDef {
            id: self.id()?,
            name: self.text()?,
            connection_limit: self.small()?,
            allows_connections: self.flag()?,
            is_template: self.flag()?,
            settings: self.list(|input| Some((input.text()?, input.text()?)))?,
        })
    }

    pub(super) fn about(&mut self) -> Option<About> {
        Some(About {
            id: self.id()?,
            object: self.id()?,
            owner: self.id()?,
            grants: self.optional(|input| input.list(Self::grant))?,
            comments: self
                .list(|input| Some(Comment { column: input.optional(Self::short)?, text: input.text()? }))?,
        })
    }

    fn grant(&mut self) -> Option<Grant> {
        let rights = |input: &mut Self| input.short().map(|bits| Rights(bits as u16));
        Some(Grant {
            grantee: self.optional(Self::id)?,
            grantor: self.id()?,
            rights: rights(self)?,
            grantable: rights(self)?,
        })
    }
}
