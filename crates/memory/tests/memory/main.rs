//! Tests of the allocator and of the table engines, by their public interfaces.

mod crash;
mod damage;
mod engines;
mod interface;
mod life;
mod needed;
mod oracle;
mod rng;
mod skipping;
