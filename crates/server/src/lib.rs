//! The PostgreSQL wire protocol over blocking threads: connections, statements, portals, COPY,
//! cancellation.
//!
//! What this crate doesn't know: SQL, and anything of storage below `varve-engine`.
//!
//! One thread serves one connection. It reads frames (`frame`), decodes them (`message`), keeps the
//! conversation's state (`connection`), runs statements through a session (`session`) and gathers
//! the answers (`out`), which leave with one write at each Sync. docs/decisions/0701 has the
//! measurements that led here.

mod auth;
mod codec;
mod connection;
mod end_point;
pub mod error;
mod extended;
pub mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod message;
pub mod options;
mod out;
mod portal;
mod refusal;
mod registry;
mod results;
mod server;
pub mod session;
mod startup;
mod stream;
mod transcode;
mod visit;

pub use error::{ServerError, Severity, WireError};
pub use options::{Encryption, Options, Proof, Tls};
pub use server::{Listener, Server};
