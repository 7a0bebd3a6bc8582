//! The disk of a server: what a machine would find after a power cut.
//!
//! The file layer `shim.c` is compiled here and preloaded into the server. For each life the server
//! gets a directory of its own, filled with what the disk held when the life before was cut off.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::folder::Folder;

/// The folder with the sources of the file layer and of the probe that tests it.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power_cut");
/// How long a sync takes: about as on a solid-state disk without a battery.
const SYNC_US: u32 = 1_500;

/// As the server makes its directory.
const OWNER_ONLY: u32 = 0o700;

/// Which liberties a disk takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It holds exactly what was synced.
    Strict,
    /// It also holds, by chance, pieces of what was written since.
    Torn,
}

/// A disk, and the directory of the server that runs on it.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: Folder,
    lives: u32,
}

/// What a server is to be started with.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// Its directory.
    pub(crate) files: PathBuf,
    /// What it needs in its environment.
    pub(crate) env: Vec<(&'static str, OsString)>,
}

impl Disk {
    /// An empty disk.
    pub(crate) fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        std::fs::create_dir(folder.join("image")).expect("ours");
        Self { folder, lives: 0 }
    }

    /// A path beside the disk.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The directory of the running server.
    pub(crate) fn files(&self) -> PathBuf {
        self.folder.join(&format!("files-{}", self.lives))
    }

    fn platter(&self) -> PathBuf {
        self.folder.join(&format!("disk-{}", self.lives))
    }

    /// What the disk held when the server was last cut off, as files.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Where a server can start on what the disk holds; the seed is for what a disk does by chance.
    pub(crate) fn mount(&mut self, manner: Manner, seed: u64) -> Mounted {
        let (old_files, old_platter) = (self.files(), self.platter());
        self.lives += 1;
        for folder in [self.files(), self.platter()] {
            DirBuilder::new().mode(OWNER_ONLY).create(folder).expect("ours");
        }
        copy(&self.image(), &self.files());
        for folder in [old_files, old_platter] {
            let _there_was_none = std::fs::remove_dir_all(folder);
        }
        let mut env = vec![
            ("LD_PRELOAD", layer().into()),
            ("FILES_DIR", self.files().into_os_string()),
            ("DISK_DIR", self.platter().into_os_string()),
            ("DISK_SYNC_US", SYNC_US.to_string().into()),
            ("DISK_FULL", self.full_flag().into_os_string()),
            ("DISK_BROKEN", self.broken_flag().into_os_string()),
        ];
        if manner == Manner::Torn {
            env.push(("DISK_SEED", seed.to_string().into()));
        }
        Mounted { files: self.files(), env }
    }

    /// While this file is there, nothing can be written.
    pub(crate) fn full_flag(&self) -> PathBuf {
        self.folder.join("full")
    }

    /// While this file is there, no sync succeeds.
    pub(crate) fn broken_flag(&self) -> PathBuf {
        self.folder.join("broken")
    }

    /// The power is cut: forgets everything but what the disk holds. The server must be dead.
    pub(crate) fn cut(&mut self) {
        // Cut off before the layer had listed the directory: that life has written nothing.
        let Some(entries) = self.entries() else { return };
        let image = self.image();
        std::fs::remove_dir_all(&image).expect("ours");
        std::fs::create_dir(&image).expect("ours");
        for (number, name) in entries {
            let bytes = self.platter().join(number);
            std::fs::copy(bytes, image.join(name)).expect("the layer keeps what it lists");
        }
    }

    fn entries(&self) -> Option<Vec<(String, String)>> {
        let entries = match std::fs::read_to_string(self.platter().join("entries")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => panic!("the layer's list cannot be read: {error}"),
        };
        let split = |line: &str| {
            let (number, name) = line.split_once(' ').expect("number and name");
            (number.to_owned(), name.to_owned())
        };
        Some(entries.lines().map(split).collect())
    }
}

/// Copies the files of a flat directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("ours") {
        let entry = entry.expect("ours");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("ours");
    }
}

/// The file layer, ready to be preloaded.
fn layer() -> &'static Path {
    static LAYER: OnceLock<PathBuf> = OnceLock::new();
    LAYER.get_or_init(|| compile("shim.c", "layer.so", &["-shared", "-fPIC"]))
}

/// The program that tests the file layer.
pub(crate) fn probe() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| compile("probe.c", "probe", &[]))
}

/// Compiles one of our C programs with the system's compiler.
fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fvisibility=hidden"])
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(Path::new(SOURCES).join(source))
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("the power-cut suite needs a C compiler by the name of cc; install one");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{source} does not compile:\n{said}");
    output
}
