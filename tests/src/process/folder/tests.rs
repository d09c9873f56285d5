use std::collections::BTreeSet;
use std::path::PathBuf;

use super::Folder;

#[test]
fn concurrently_created_folders_are_distinct_and_kept() {
    let threads: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(|| Folder::create("folders").unwrap()))
        .collect();
    let folders: Vec<Folder> = threads
        .into_iter()
        .map(|made| made.join().unwrap())
        .collect();
    let paths: BTreeSet<PathBuf> = folders
        .iter()
        .map(|folder| folder.path().to_owned())
        .collect();
    assert_eq!(paths.len(), folders.len());
    assert!(paths.iter().all(|path| path.join("lock").exists()));
    drop(folders);
    assert!(paths.iter().all(|path| !path.exists()));
}
