//! Parts of an engine, and which functions belong to which part.
//!
//! If any function of a stack belongs to the log, a checkpoint, a directory, or a run, the stack belongs to
//! this part. So a log record that is written to a file counts for the log. In any other stack, the innermost
//! function that has a part decides.
//!
//! This module does not know how stacks are taken.

/// A part of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Rows: slots of tuples, entries of MemTables, rows in leaves.
    Tuple,
    /// The structures that find the row of a key.
    Index,
    /// Undo log or write-ahead log.
    Log,
    /// Checkpoints of `inplace`.
    Checkpoint,
    /// Master records, directories of roots, and lists of files and arenas.
    Directory,
    /// Flushes of MemTables and merges of runs.
    Runs,
    /// The allocator.
    Allocator,
    /// Files, and pages of files.
    Files,
    /// The worker, and functions of no other part.
    Other,
}

impl Part {
    /// All parts, in the order of reports.
    pub const ALL: [Part; 9] = [
        Part::Tuple,
        Part::Index,
        Part::Log,
        Part::Checkpoint,
        Part::Directory,
        Part::Runs,
        Part::Allocator,
        Part::Files,
        Part::Other,
    ];

    /// Returns the name of the part in rows.
    pub fn name(self) -> &'static str {
        match self {
            Part::Tuple => "tuple",
            Part::Index => "index",
            Part::Log => "log",
            Part::Checkpoint => "checkpoint",
            Part::Directory => "directory",
            Part::Runs => "runs",
            Part::Allocator => "allocator",
            Part::Files => "files",
            Part::Other => "other",
        }
    }

    /// Returns the part of a stack in the format of `std::backtrace::Backtrace`. Returns `None` if the stack
    /// names no function of the engines. Then the program has no symbols, or the call came from elsewhere.
    pub fn of_stack(stack: &str) -> Option<Part> {
        let modules: Vec<String> = stack.lines().filter_map(module_of).collect();
        let ruled = |rules: &[(&str, Part)], module: &str| {
            rules.iter().find(|(name, _)| is_in(module, name)).map(|(_, part)| *part)
        };
        let anywhere = modules.iter().find_map(|module| ruled(ANYWHERE, module));
        let innermost = || modules.iter().find_map(|module| ruled(INNERMOST, module));
        anywhere.or_else(innermost).or_else(|| (!modules.is_empty()).then_some(Part::Other))
    }
}

/// Modules that decide about a stack wherever they are in it.
const ANYWHERE: &[(&str, Part)] = &[
    ("undo_log", Part::Log),
    ("wal", Part::Log),
    ("log::record", Part::Log),
    ("cow_tree::undo", Part::Log),
    ("inplace::checkpoint", Part::Checkpoint),
    ("cow_tree::roots", Part::Directory),
    ("cow::directory", Part::Directory),
    ("nvm_cow::directory", Part::Directory),
    ("nvm_cow::list", Part::Directory),
    ("nvm_log::directory", Part::Directory),
    ("log::manifest", Part::Directory),
    ("log::compaction", Part::Runs),
    ("nvm_log::compaction", Part::Runs),
];

/// Modules that decide if no module further inside does. Modules that only pass bytes on are not in the list.
const INNERMOST: &[(&str, Part)] = &[
    ("nvm_inplace::store", Part::Tuple),
    ("nvm_inplace", Part::Index),
    ("inplace::tree", Part::Index),
    ("inplace::node", Part::Index),
    ("inplace", Part::Tuple),
    ("cow_tree::store", Part::Tuple),
    ("cow_tree::medium", Part::Tuple),
    ("cow_tree", Part::Index),
    ("cow::pages", Part::Files),
    ("cow::space", Part::Files),
    ("cow::row", Part::Tuple),
    ("cow::store", Part::Tuple),
    ("nvm_cow::space", Part::Tuple),
    ("nvm_cow::store", Part::Tuple),
    ("lsm::memtable", Part::Tuple),
    ("lsm::entry", Part::Tuple),
    ("lsm::changes", Part::Tuple),
    ("lsm::store", Part::Tuple),
    ("lsm::skip_list", Part::Index),
    ("lsm::bloom", Part::Index),
    ("lsm::node", Part::Index),
    ("lsm::run", Part::Index),
    ("lsm::cursor", Part::Index),
    ("lsm::view", Part::Index),
    ("log::store", Part::Tuple),
    ("nvm_log::store", Part::Tuple),
    ("tuple", Part::Tuple),
    ("files", Part::Files),
    ("allocator", Part::Allocator),
    ("chunks", Part::Allocator),
    ("publish", Part::Allocator),
    ("intent", Part::Allocator),
    ("heap", Part::Allocator),
    ("slab", Part::Allocator),
    ("pool", Part::Allocator),
];

/// Returns the module of the crate `memory` that a line of a stack names, followed by `::`. If the line has
/// the path of a source file, the module comes from this path. The reason is that the name of an inlined
/// function has no module, but its line has a path.
fn module_of(line: &str) -> Option<String> {
    const SOURCES: &str = "/memory/src/";
    const CRATE: &str = "varve_memory::";
    if let Some((_, file)) = line.split_once(SOURCES) {
        let (module, _) = file.split_once(".rs")?;
        return Some(format!("{}::", module.replace('/', "::")));
    }
    let (_, function) = line.split_once(": ")?;
    // A method of a trait is printed as `<TYPE as TRAIT>::method`. The module of the type counts.
    let function = function.trim_start_matches(['<', '&']);
    function.strip_prefix(CRATE).map(str::to_owned)
}

/// Returns whether the path of a function begins with this module.
fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_RECORD: &str = "
   0: varve_lab::stores::sampled::SampledRegion::sample
             at ./sampled.rs:1:1
   3: varve_memory::files::open_files::Files::write
   4: varve_memory::wal::Wal::write_out
   5: <varve_memory::inplace::store::Inplace as varve_memory::store::Store>::sync
   6: varve_lab::stores::driver::run";

    #[test]
    fn a_log_record_in_a_file_counts_for_the_log() {
        assert_eq!(Part::of_stack(LOG_RECORD), Some(Part::Log));
        let page = LOG_RECORD.replace("wal::Wal", "cow::pages::Pages");
        assert_eq!(Part::of_stack(&page), Some(Part::Files));
    }

    #[test]
    fn the_innermost_function_decides() {
        let lookup = "
   1: varve_memory::space::Space::read
   2: varve_memory::nvm_inplace::index::Index::lookup
   3: <varve_memory::nvm_inplace::store::NvmInplace as varve_memory::store::Store>::get";
        assert_eq!(Part::of_stack(lookup), Some(Part::Index));
        let row = lookup.replace("nvm_inplace::index::Index", "nvm_inplace::store::NvmInplace");
        assert_eq!(Part::of_stack(&row), Some(Part::Tuple));
    }

    #[test]
    fn files_of_the_source_tell_the_module_of_functions_without_names() {
        let stack = "
   4: read
             at /src/crates/memory/src/space.rs:44:9
   5: lookup
             at /src/crates/memory/src/nvm_inplace/index.rs:101:30";
        assert_eq!(Part::of_stack(stack), Some(Part::Index));
    }

    #[test]
    fn a_stack_without_symbols_has_no_part() {
        assert_eq!(Part::of_stack("   0: <unknown>\n   1: <unknown>"), None);
        assert_eq!(Part::of_stack("   0: varve_memory::state::new"), Some(Part::Other));
    }
}
