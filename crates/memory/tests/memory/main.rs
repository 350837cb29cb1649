//! Tests of the allocator, of the files and of the table engines, by their public interfaces.

mod crash;
mod damage;
mod engines;
mod files;
mod interface;
mod life;
mod needed;
mod oracle;
mod removal;
mod rng;
mod skipping;
mod tables_file;
mod traced;
