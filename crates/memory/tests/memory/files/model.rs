//! A model of the contents of files, and of the contents that a crash may leave.

use std::collections::BTreeMap;
use std::ops::Range;

use varve_memory::{FileResult, Files};

/// A file: its contents at the last `fsync`, and after each write since then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileModel {
    pub versions: Vec<Vec<u8>>,
}

impl FileModel {
    pub fn with(contents: Vec<u8>) -> FileModel {
        FileModel { versions: vec![contents] }
    }

    pub fn current(&self) -> &[u8] {
        self.versions.last().map_or(&[], |version| &version[..])
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let mut next = self.current().to_vec();
        next.resize(next.len().max(at + bytes.len()), 0);
        next[at..at + bytes.len()].copy_from_slice(bytes);
        self.versions.push(next);
    }

    pub fn fsync(&mut self) {
        self.versions = vec![self.current().to_vec()];
    }

    pub fn truncate(&mut self, len: usize) {
        self.versions.iter_mut().for_each(|version| version.truncate(len));
    }

    /// Checks that a crash may leave these contents: the durable length, and for each byte one of its
    /// versions.
    fn check_image(&self, found: &[u8]) -> Result<(), String> {
        let durable = self.versions.first().map_or(0, Vec::len);
        if found.len() != durable {
            return Err(format!("{} bytes, not {durable}", found.len()));
        }
        let is_known = |range: Range<usize>| {
            self.versions.iter().any(|version| version.get(range.clone()) == found.get(range.clone()))
        };
        // Most lines are those of one version; the bytes of the others are compared one by one.
        for line in (0..durable).step_by(64) {
            let end = durable.min(line + 64);
            if !is_known(line..end)
                && let Some(at) = (line..end).find(|at| !is_known(*at..at + 1))
            {
                return Err(format!("byte {at} was never {}", found[at]));
            }
        }
        Ok(())
    }
}

/// The files by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub files: BTreeMap<String, FileModel>,
}

pub fn contents(files: &mut Files, name: &str) -> Result<Vec<u8>, String> {
    let read = |files: &mut Files| -> FileResult<Vec<u8>> {
        let handle = files.open_file(name)?;
        let mut bytes = vec![0; files.len_bytes(handle)? as usize];
        files.read_at(handle, 0, &mut bytes)?;
        Ok(bytes)
    };
    read(files).map_err(|error| error.to_string())
}

impl Model {
    /// Returns the model of the present files. All of their contents count as durable.
    pub fn of(files: &mut Files) -> Result<Model, String> {
        let mut model = Model::default();
        for name in files.names() {
            let contents = contents(files, &name)?;
            model.files.insert(name.to_string(), FileModel::with(contents));
        }
        Ok(model)
    }

    fn compare_by(
        &self,
        files: &mut Files,
        check: impl Fn(&FileModel, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let names: Vec<String> = files.names().iter().map(ToString::to_string).collect();
        if !names.iter().eq(self.files.keys()) {
            return Err(format!("files {names:?}, not {:?}", self.files.keys()));
        }
        self.files.iter().try_for_each(|(name, file)| {
            let found = contents(files, name)?;
            check(file, &found).map_err(|error| format!("file {name:?}: {error}"))
        })
    }

    /// Compares the files with everything that a reader should see.
    pub fn compare(&self, files: &mut Files) -> Result<(), String> {
        self.compare_by(files, |file, found| match file.current() == found {
            true => Ok(()),
            false => Err(format!("{} bytes, or other ones, not {}", found.len(), file.current().len())),
        })
    }

    /// Compares the files with what a crash may have left.
    pub fn compare_image(&self, files: &mut Files) -> Result<(), String> {
        self.compare_by(files, FileModel::check_image)
    }
}
