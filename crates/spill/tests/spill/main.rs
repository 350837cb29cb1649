//! Tests of the operators on inputs that do not fit in memory.

mod bench;
mod sorts;
