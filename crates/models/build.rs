//! Makes models from real code: copies sources of the pager and the engine, and changes the copies so that
//! they use the atomics, locks and threads of a model checker.
//!
//! The original crates are not changed. There are three kinds of changes. The build fails if the text for a
//! change is not in the source.
//! - Paths: `std::sync::atomic` becomes `crate::sync::atomic`.
//! - Adaptations (`src/adaptations.rs`): code that a model checker cannot run is replaced.
//! - Flaws (`src/flaws.rs`): planted bugs behind a switch, which the models must find.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "src/adaptations.rs"]
mod adaptations;
#[path = "src/flaws.rs"]
mod flaws;

/// Files of the engine that use nothing else of the engine but errors.
const ENGINE_FILES: &[&str] = &[
    "deadlock.rs",
    "ids.rs",
    "lock_queue.rs",
    "modes.rs",
    "registry.rs",
    "status.rs",
    "table_lock.rs",
    "waits.rs",
];
/// Files for loom, which also tries weak memory orders.
const LOOM_FILES: &[&str] = &["base/ids.rs", "pool/frame.rs"];

struct Crate {
    /// The module of this crate that gets the code.
    module: &'static str,
    from: PathBuf,
    to: PathBuf,
    /// The path of the modules that replace those of std and parking_lot.
    sync: &'static str,
}

fn main() {
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo says where to write"));
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pager =
        Crate { module: "pager", from: crates.join("pager/src"), to: out.join("pager"), sync: "crate::sync" };
    let engine = Crate {
        module: "engine",
        from: crates.join("engine/src"),
        to: out.join("engine"),
        sync: "crate::sync",
    };
    let loomed = Crate {
        module: "loomed",
        from: pager.from.clone(),
        to: out.join("loomed"),
        sync: "crate::loom_sync",
    };
    [&pager.to, &engine.to, &loomed.to].into_iter().for_each(|folder| clear(folder));
    let mut used = vec![false; adaptations::ADAPTATIONS.len() + flaws::FLAWS.len()];
    for file in sources(&pager.from, Path::new("")) {
        pager.copy(&file, &mut used);
    }
    ENGINE_FILES.iter().for_each(|file| engine.copy(Path::new(file), &mut used));
    LOOM_FILES.iter().for_each(|file| loomed.copy(Path::new(file), &mut used));
    assert!(used.iter().all(|is_used| *is_used), "an adaptation or flaw names a file that is not modelled");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/adaptations.rs");
    println!("cargo:rerun-if-changed=src/flaws.rs");
    let lib = format!("#[path = {:?}] pub mod pager;", pager.to.join("lib.rs"));
    let list =
        |of: &Crate, files: &[&str]| -> String { files.iter().map(|file| declare(of, file)).collect() };
    let engine = format!("pub mod engine {{ {} }}", list(&engine, ENGINE_FILES));
    let loomed = format!(
        "pub mod loomed {{ {} pub mod base {{ pub use super::ids; pub(crate) use crate::pager::base::latch; }} }}",
        list(&loomed, LOOM_FILES)
    );
    write(&out.join("modelled.rs"), &[lib, engine, loomed].join("\n"));
}

fn declare(of: &Crate, file: &str) -> String {
    let name = Path::new(file).file_stem().and_then(|stem| stem.to_str()).expect("a file of Rust has a name");
    format!("#[path = {:?}] pub mod {name};\n", of.to.join(file))
}

/// Returns all Rust files below `root`, relative to it.
fn sources(root: &Path, below: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(root.join(below)).expect("the sources of the pager and the engine can be listed");
    let paths = entries.map(|entry| below.join(entry.expect("a directory can be read").file_name()));
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| root.join(path).is_dir());
    let inner = folders.iter().flat_map(|folder| sources(root, folder));
    files.into_iter().filter(|file| file.extension().is_some_and(|ext| ext == "rs")).chain(inner).collect()
}

/// Removes the files of an earlier build. Otherwise a file that has moved since then would be there twice.
fn clear(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).expect("the build directory can be written");
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("files lie in a directory"))
        .expect("the build directory can be written");
    fs::write(path, text).expect("the build directory can be written");
}

impl Crate {
    fn copy(&self, file: &Path, used: &mut [bool]) {
        let source = self.from.join(file);
        println!("cargo:rerun-if-changed={}", source.display());
        let mut text = fs::read_to_string(&source).expect("a source file can be read");
        let name = format!("{}/{}", self.module, file.display());
        let changes = adaptations::ADAPTATIONS.iter().copied();
        let planted = flaws::FLAWS.iter().map(|(_, file, from, to)| (*file, *from, *to));
        for (at, (_, from, to)) in
            changes.chain(planted).enumerate().filter(|(_, (file, _, _))| *file == name)
        {
            assert_eq!(
                text.matches(from).count(),
                1,
                "{name}: the text that a model changes does not occur exactly once: {from}"
            );
            text = text.replace(from, to);
            used[at] = true;
        }
        write(&self.to.join(file), &self.rename(&text));
    }

    /// Replaces paths by the paths inside this crate. Placeholders prevent that a replaced path is replaced
    /// again.
    fn rename(&self, text: &str) -> String {
        let module = format!("crate::{}::", self.module);
        let within = format!("pub(in MODELS::modelled::{}::", self.module);
        let pairs = [
            ("pub(in crate::", within.as_str()),
            ("crate::", module.as_str()),
            ("MODELS::", "crate::"),
            ("varve_pager::", "crate::pager::"),
            ("std::sync::atomic", &format!("{}::atomic", self.sync)),
            ("std::thread", &format!("{}::thread", self.sync)),
            ("parking_lot", self.sync),
            ("thread_local!", &format!("{}::thread_local!", self.sync)),
            ("#[cfg(test)]", "#[cfg(any())]"),
            ("\nmod ", "\npub mod "),
        ];
        pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}
