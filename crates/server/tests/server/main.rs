//! Tests of the public interface of the crate `server`. They are one program, so that they are linked once
//! and run in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod authentication;
mod conversations;
mod malformed;
mod silence;
mod startup;
mod support;
