//! A directory that is missing, read-only or in use is refused with an error that names it.

use std::os::unix::fs::PermissionsExt;

use varve_device::{DirLock, Directory, ErrorKind, FileDirectory, FileOptions, OpenHow, Space};

#[test]
fn a_missing_directory_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("nowhere");
    let error = FileDirectory::open(&path, FileOptions::default()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.to_string().contains("nowhere"), "{error}");
    FileDirectory::open_or_create(&path, FileOptions::default()).unwrap();
    assert!(path.is_dir());
}

#[test]
fn a_directory_without_write_permission_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let opened = FileDirectory::open(scratch.path(), FileOptions::default()).map(|_| ());
    // The superuser writes everywhere, so there the probe succeeds.
    if let Err(error) = opened {
        assert_eq!(error.kind, ErrorKind::ReadOnly);
        assert!(error.to_string().contains(&scratch.path().display().to_string()), "{error}");
    }
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_read_only_opening_leaves_no_trace() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), [0; 4096]).unwrap();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let directory = FileDirectory::open(scratch.path(), options).unwrap();
    let file = directory.open("a", OpenHow::existing(Space::Data)).unwrap();
    assert_eq!(file.set_len(0).unwrap_err().kind, ErrorKind::ReadOnly);
    assert_eq!(directory.list().unwrap(), ["a"]);
}

#[test]
fn a_second_lock_names_the_holder() {
    let scratch = tempfile::tempdir().unwrap();
    let held = DirLock::take(scratch.path()).unwrap();
    let error = DirLock::take(scratch.path()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Locked { pid: Some(std::process::id()) });
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(held);
    DirLock::take(scratch.path()).unwrap();
}

#[test]
fn probing_leaves_nothing_behind_and_can_be_printed() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = FileDirectory::open(scratch.path(), FileOptions::default()).unwrap();
    assert!(directory.list().unwrap().is_empty());
    let text = directory.capabilities().to_string();
    assert!(text.contains("direct I/O") && text.contains("holes"), "{text}");
}
