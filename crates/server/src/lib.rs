//! The PostgreSQL wire protocol, with blocking threads: connections, statements, portals, COPY, cancellation.
//!
//! Each connection has one thread. The thread reads frames (`frame`), decodes messages (`message`), and keeps
//! the state of the protocol (`connection`). It runs statements through an SQL session (`session`). The
//! answers are collected in a buffer (`out`), and are sent with one write at each Sync message. Decision 0701
//! has the measurements for this design.
//!
//! This crate does not know SQL, and uses no storage below `varve-engine`.

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
pub use refusal::Starting;
pub use server::{Listener, Server};
