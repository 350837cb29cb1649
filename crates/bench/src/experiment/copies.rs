//! Directories with a loaded database, and their copies.

use std::path::{Path, PathBuf};

use crate::Result;

/// Tells that loading has ended: the last file to be made.
const LOADED: &str = "loaded";

/// A directory that is removed when it is dropped, unless it was somebody's.
#[derive(Debug)]
pub struct Bench {
    path: PathBuf,
    is_ours: bool,
}

impl Bench {
    /// The directory that was asked for, or a fresh one in the working directory.
    pub fn open(asked: Option<PathBuf>) -> Result<Self> {
        let is_ours = asked.is_none();
        let path = asked.unwrap_or_else(|| PathBuf::from(format!("varve-experiment-{}", std::process::id())));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, is_ours })
    }

    /// The directory of a loaded database; `load` fills it unless an earlier run has.
    pub fn base(&self, name: &str, load: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.path.join(name);
        if path.join(LOADED).exists() {
            return Ok(path);
        }
        remove(&path)?;
        load(&path)?;
        std::fs::write(path.join(LOADED), "")?;
        Ok(path)
    }

    /// A fresh copy of a loaded database.
    pub fn copy(&self, base: &Path, name: &str) -> Result<Copied> {
        let path = self.path.join(format!("copy-{name}"));
        remove(&path)?;
        std::fs::create_dir_all(&path)?;
        for entry in std::fs::read_dir(base)? {
            let entry = entry?;
            if entry.file_name() != LOADED && entry.file_type()?.is_file() {
                std::fs::copy(entry.path(), path.join(entry.file_name()))?;
            }
        }
        Ok(Copied(path))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = remove(&self.path);
        }
    }
}

/// A copy, which is removed when it is dropped.
#[derive(Debug)]
pub struct Copied(PathBuf);

impl Copied {
    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() { Ok(std::fs::remove_dir_all(path)?) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BenchError;

    fn load(path: &Path) -> Result<()> {
        std::fs::create_dir_all(path)?;
        Ok(std::fs::write(path.join("data"), "rows")?)
    }

    #[test]
    fn a_load_that_was_cut_off_is_done_again_and_a_whole_one_is_not() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let bench = Bench::open(Some(folder.path().to_owned())).expect("a directory");
        let cut_off = bench.base("a", |path| load(path).and(Err(BenchError::Wrong("cut off".to_owned()))));
        assert!(cut_off.is_err());
        let base = bench.base("a", load).expect("loaded");
        let again = bench.base("a", |_| Err(BenchError::Wrong("loaded twice".to_owned())));
        assert_eq!(again.expect("the same"), base);
        let copy = bench.copy(&base, "x").expect("a copy");
        let path = copy.path().to_owned();
        assert_eq!(std::fs::read_to_string(path.join("data")).expect("copied"), "rows");
        assert!(!path.join(LOADED).exists());
        drop(copy);
        assert!(!path.exists() && base.exists());
        drop(bench);
        assert!(base.exists(), "somebody's directory stays");
    }
}
