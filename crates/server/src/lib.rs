//! The PostgreSQL wire protocol, with blocking threads: connections, statements, portals, COPY, cancellation.
//!
//! One thread serves one connection. It reads frames (`frame`), decodes messages (`message`), and keeps the
//! state of the protocol (`connection`). It runs statements through a session (`session`), and collects the
//! answers (`out`), which are sent with one write at each Sync. Decision 0701 has the measurements behind
//! this design.
//!
//! What this crate doesn't know: SQL, storage below `varve-engine`.

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
