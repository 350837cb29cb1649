//! Tests of the public interface of the crate `lab`. They are one program, so that they are linked once and
//! run in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod charts;
mod command_line;
mod engines;
mod experiment;
mod lee;
mod linkbench;
mod picture;
mod smart;
mod spilled;
mod tpce_like;
