//! Tests of the crate `lab`, by its public interface, in one program: they link once and run side by side.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod charts;
mod command_line;
mod experiment;
mod linkbench;
mod tpce_like;
