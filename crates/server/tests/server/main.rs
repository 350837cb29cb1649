//! Tests of the crate `server`, by its public interface, in one program: they link once and run side by side.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod authentication;
mod conversations;
mod fuzz;
mod malformed;
mod silence;
mod startup;
mod support;
