//! `mkfs`, and the program under the names of mke2fs.

mod beside_mke2fs;
mod calls;
mod kernel;
mod refused;

use std::path::{Path, PathBuf};
use std::process::Command;

use throughline_testkit::{e2fs, program};

use crate::common::ok;

const UUID: &str = "6b33f586-a183-4383-921d-30da3fef2e5c";
const SEED: &str = "hash_seed=11111111-2222-3333-4444-555555555555";
const TIME: &str = "1700000000";

/// The binary under the names of mke2fs, in a directory of its own.
struct Names {
    dir: tempfile::TempDir,
}

impl Names {
    fn new() -> Names {
        let dir = tempfile::tempdir().unwrap();
        ok(["-q", "install-mke2fs", dir.path().to_str().unwrap()]);
        Names { dir }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.dir.path().join(name));
        command.env_remove("MKE2FS_CONFIG");
        command
    }
}

/// A size and options; UUID, hash seed and time are the same for all.
struct Set {
    size: String,
    words: Vec<String>,
}

impl Set {
    fn new(line: &str) -> Set {
        let mut words = line.split_whitespace().map(str::to_owned);
        let size = words.next().unwrap();
        let mut set = Set {
            size,
            words: words.collect(),
        };
        // Of two options -E, mke2fs takes the last.
        match set.words.iter().position(|word| word == "-E") {
            Some(at) => set.words[at + 1] = format!("{SEED},{}", set.words[at + 1]),
            None => set.words.extend(["-E".to_owned(), SEED.to_owned()]),
        }
        set
    }

    /// Completes and runs a command.
    #[track_caller]
    fn run(&self, mut command: Command, image: &Path) {
        command
            .env("E2FSPROGS_FAKE_TIME", TIME)
            .args(["-q", "-F", "-U", UUID])
            .args(&self.words)
            .arg(image)
            .arg(&self.size);
        let what = format!("{command:?}");
        program::run(&mut command, e2fs::LIMIT).good(&what);
    }
}

/// Both images of a set.
struct Pair {
    _dir: tempfile::TempDir,
    ours: PathBuf,
    theirs: PathBuf,
}

impl Pair {
    fn new(set: &Set, names: &Names) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        // One file name for both: dumpe2fs shows it.
        let [ours, theirs] = ["ours", "theirs"].map(|name| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            dir.path().join(name).join("image")
        });
        set.run(names.command("mke2fs"), &ours);
        set.run(e2fs::tool("mke2fs"), &theirs);
        Pair {
            _dir: dir,
            ours,
            theirs,
        }
    }
}
