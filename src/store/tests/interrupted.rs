//! What a killed process leaves of the database.

use super::*;

#[test]
fn a_database_whose_making_was_interrupted_is_made_again() {
    let settings_of = |dir: &TempDir| dir.path().join("db/conf");
    let whole = tempfile::tempdir().unwrap();
    drop(open(&whole));
    let settings = fs::read(settings_of(&whole)).unwrap();
    for length in 0..=settings.len() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(&dir));
        fs::remove_dir_all(dir.path().join("db")).unwrap();
        fs::create_dir_all(dir.path().join("db/blobs")).unwrap();
        fs::write(settings_of(&dir), &settings[..length]).unwrap();
        let store = open(&dir);
        store
            .commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(job(1, 0, State::Queued))])
            .unwrap();
        drop(store);
        assert_eq!(open(&dir).open_jobs().unwrap().len(), 1, "{length} bytes of the settings");
        assert!(!dir.path().join("aside").exists());
    }
}

#[test]
fn a_torn_snapshot_is_set_aside_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(job(1, 0, running()))]).unwrap();
    drop(store);
    drop(open(&dir));
    for entry in fs::read_dir(dir.path().join("db")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("snap.") {
            fs::write(&path, "torn").unwrap();
            fs::write(path.with_extension("generating"), "torn, too").unwrap();
        }
    }
    assert_eq!(open(&dir).open_jobs().unwrap(), [job(1, 0, running())]);
    let aside = fs::read_dir(dir.path().join("aside")).unwrap();
    assert!(aside.count() >= 2, "both are kept");
}
