//! Tests of files in persistent memory: a model, crash images, a full region, and runs without some fences.

mod crash;
mod damage;
mod interface;
mod life;
mod model;
mod needed;

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_memory::{Allocator, FileCosts, FileResult, Files, Owner};

use crate::life::{DATABASE, REGION};

/// The name of the files' root.
pub const ROOT: &str = "files";

/// Opens the files of a region.
pub fn open_on(allocator: Arc<Allocator>) -> FileResult<Files> {
    let owner = Owner::new(5).unwrap_or_else(|| panic!("5 is an owner"));
    Files::open(allocator, ROOT, owner, FileCosts::default())
}

/// An allocator and the files on it.
pub struct OpenedFiles {
    pub allocator: Arc<Allocator>,
    pub files: Files,
}

/// Opens the files in a directory.
pub fn open(directory: &MemoryDirectory) -> Result<OpenedFiles, String> {
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    let allocator = Arc::new(Allocator::open(region, DATABASE).map_err(|error| error.to_string())?);
    let files = open_on(Arc::clone(&allocator)).map_err(|error| error.to_string())?;
    Ok(OpenedFiles { allocator, files })
}

/// Checks that every active chunk belongs to the files.
pub fn no_chunk_is_lost(opened: &OpenedFiles) -> Result<(), String> {
    let mut held = opened.files.chunks().map_err(|error| error.to_string())?;
    held.sort_unstable();
    let active = opened.allocator.active_chunks().map_err(|error| error.to_string())?;
    let active: Vec<_> = active.iter().map(|chunk| chunk.pointer).collect();
    match held == active {
        true => opened.allocator.check().map_err(|error| error.to_string()),
        false => Err(format!("{} chunks are active, and the files hold {}", active.len(), held.len())),
    }
}
