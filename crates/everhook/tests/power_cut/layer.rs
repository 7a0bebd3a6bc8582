//! The file layer itself: what it keeps and forgets, shown with a probe instead of a server.

use std::path::Path;
use std::process::Command;

use crate::disk::{Disk, Manner, probe};

/// Runs the steps on a disk that holds `kept` = `old`; returns what the disk holds after the cut.
fn run(steps: &str, manner: Manner, seed: u64) -> Vec<(String, String)> {
    let mut disk = Disk::new("layer");
    std::fs::write(disk.image().join("kept"), "old").expect("ours");
    let mounted = disk.mount(manner, seed);
    let ran = Command::new(probe())
        .arg(steps)
        .current_dir(&mounted.files)
        .envs(mounted.env)
        .output()
        .expect("compiled");
    assert!(ran.status.success(), "{steps}: {}", String::from_utf8_lossy(&ran.stderr));
    disk.cut();
    contents(&disk.image())
}

fn contents(dir: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(dir).expect("ours").map(|entry| {
        let entry = entry.expect("ours");
        let text = std::fs::read_to_string(entry.path()).expect("text");
        (entry.file_name().into_string().expect("text"), text)
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

fn check(steps: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    assert_eq!(run(steps, Manner::Strict, 0), expected, "{steps}");
}

#[test]
fn what_is_not_synced_is_forgotten() {
    let _machine = crate::support::alone();
    check("open kept;write NEW", &[("kept", "old")]);
    check("open kept;write NEW;sync", &[("kept", "NEW")]);
    check("open kept;write NEW;data;write more", &[("kept", "NEW")]);
    check("open kept;write NEW;append kept more;at 1 x;parts 2 a b;sync", &[("kept", "Nxabore")]);
    check("open kept;size 2", &[("kept", "old")]);
    check("open kept;size 2;sync", &[("kept", "ol")]);
    check("empty kept;write x", &[("kept", "old")]);
    check("empty kept;sync", &[("kept", "")]);
    check("open kept;at 5 x;sync", &[("kept", "old\0\0x")]);
}

#[test]
fn a_name_lasts_from_the_sync_of_its_directory() {
    let _machine = crate::support::alone();
    check("open new;write x;sync", &[("kept", "old")]);
    check("open new;write x;names", &[("kept", "old"), ("new", "")]);
    check("open new;write x;sync;names;write y", &[("kept", "old"), ("new", "x")]);
    check("rename kept moved", &[("kept", "old")]);
    check("rename kept moved;names", &[("moved", "old")]);
    check("unlink kept", &[("kept", "old")]);
    check("unlink kept;names", &[]);
    check("unlink kept;open kept;write x;sync", &[("kept", "old")]);
    check("unlink kept;open kept;write x;sync;names", &[("kept", "x")]);
    check("open new;write x;sync;rename new kept", &[("kept", "old")]);
    check("open new;write x;sync;rename new kept;names", &[("kept", "x")]);
}

#[test]
fn a_torn_write_leaves_whole_sectors_old_and_new() {
    let _machine = crate::support::alone();
    let mut pictures = std::collections::HashSet::new();
    for seed in 1..=4 {
        let steps = "open kept;fill 0 4096 o;sync;fill 0 4096 n";
        let (_, text) = run(steps, Manner::Torn, seed).remove(0);
        let sectors = text.as_bytes().chunks(512);
        let picture: String = sectors
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
                char::from(sector[0])
            })
            .collect();
        assert_eq!(picture.len(), 8);
        assert!(picture.contains('o') && picture.contains('n'), "{picture}");
        pictures.insert(picture);
    }
    assert!(pictures.len() > 1, "chance comes from the seed: {pictures:?}");
}
