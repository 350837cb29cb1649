//! Tests of the allocator, by its public interface.

mod crash;
mod damage;
mod interface;
mod life;
mod needed;
mod oracle;
mod rng;
mod skipping;
