//! `lab` executes the program beside this one: never another, and with a clear message if there is none.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, built, str};
use crate::copy_program;

/// A copy of the program in a directory of its own.
struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    fn new() -> Installed {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        copy_program(built("throughline"), &dir.path().join("bin/throughline"));
        Installed { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the program by this path.
    fn run(&self, program: &str, arguments: &[&str]) -> Ran {
        let mut command = Command::new(self.path(program));
        // A program that must not be found.
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        let command = command.args(arguments).env("PATH", path);
        Ran::from(command.current_dir(self.dir.path()).output().unwrap())
    }
}

/// A program that prints its name and its words.
fn plant(path: &Path) {
    let text = path.with_extension("text");
    fs::write(&text, "#!/bin/sh\necho \"$0\" \"$@\"\n").unwrap();
    copy_program(&text, path);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_missing_lab_is_named_and_gives_no_verdict() {
    let installed = Installed::new();
    plant(&installed.path("throughline-lab"));
    let expected = installed.path("bin/throughline-lab");
    for (arguments, code) in [
        (&["lab", "list"][..], 1),
        (&["-q", "lab", "--help"], 1),
        (&["help", "lab"], 1),
        (&["lab", "gate", "a", "b"], 65),
        (&["--engine", "magic", "lab", "gate"], 64),
    ] {
        let ran = installed.run("bin/throughline", arguments);
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.stderr);
        let is_named = ran.stderr.contains(str(&expected)) && ran.stderr.contains("next: install");
        assert!(is_named || code == 64, "{}", ran.stderr);
    }
}

#[test]
fn the_lab_beside_the_program_gets_the_same_words() {
    let installed = Installed::new();
    plant(&installed.path("throughline-lab"));
    plant(&installed.path("bin/throughline-lab"));
    symlink("bin/throughline", installed.path("link")).unwrap();
    let expected = installed.path("bin/throughline-lab");
    for words in ["lab", "-q lab run --help x", "help lab"] {
        let arguments: Vec<&str> = words.split(' ').collect();
        for program in ["bin/throughline", "link"] {
            let ran = installed.run(program, &arguments);
            assert_eq!(
                ran.text(),
                format!("{} {words}\n", str(&expected)),
                "{}",
                ran.stderr
            );
        }
    }
    // What is explained by the kernel may be any program.
    let ran = installed.run("bin/throughline", &["explain", "--kernel", "lab", "x"]);
    assert_eq!(ran.text(), "");
}
