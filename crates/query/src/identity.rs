//! Identities for plan nodes and functions. The library DataFusion compares plan nodes, but it cannot compare
//! the expressions of Varve in them. So it compares an identity of each node instead.
//!
//! Invariants
//! 1. Two identities are equal if and only if one is a copy of the other. Parts of a node that differ between
//!    copies are compared separately.

use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of a plan node or a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(u64);

impl Identity {
    /// Returns a new identity.
    pub fn next() -> Identity {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Identity(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Implements equality and hash of a type by its field `id` and the other named fields. The order compares
/// only the field `id`.
macro_rules! compared_by_identity {
    ($type:ty $(, $field:ident)*) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.id == other.id $(&& self.$field == other.$field)*
            }
        }

        impl Eq for $type {}

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.id.hash(state);
                $(self.$field.hash(state);)*
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.id.partial_cmp(&other.id)
            }
        }
    };
}

pub(crate) use compared_by_identity;
