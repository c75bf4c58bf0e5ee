//! What root runs as the helper of mount(8) is a program that only root can change: `install-helpers` refuses
//! another one, and copies it if it is told to.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use throughline_testing::program::has;

use crate::common::{Ran, throughline};
use crate::copy_program;

/// A user who is not root.
const USER: u32 = 61_235;

/// What is done to the program's file, or to a directory above it.
#[derive(Clone, Copy)]
enum Change {
    Owner,
    Mode(u32),
    /// An ACL that lets another user write.
    Acl,
}

/// The program in `way/bin`, a directory for its link, and one for a copy.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
        for dir in ["way", "way/bin", "sbin", "local"] {
            fs::create_dir(place.at(dir)).unwrap();
        }
        copy_program(throughline().get_program(), &place.program());
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self) -> PathBuf {
        self.at("way/bin/throughline")
    }

    fn link(&self) -> PathBuf {
        self.at("sbin/mount.fuse.throughline")
    }

    fn set(&self, name: &str, change: Change) {
        let path = self.at(name);
        match change {
            Change::Owner => chown(path, Some(USER), None).unwrap(),
            Change::Mode(mode) => fs::set_permissions(path, Permissions::from_mode(mode)).unwrap(),
            Change::Acl => {
                let entry = format!("u:{USER}:rwx");
                let mut setfacl = Command::new("setfacl");
                let set = setfacl.args(["-m", &entry]).arg(path).status();
                assert!(set.unwrap().success());
            }
        }
    }

    fn reset(&self) {
        for name in ["way", "way/bin", "way/bin/throughline", "local"] {
            chown(self.at(name), Some(0), Some(0)).unwrap();
            if has(&["setfacl"]) {
                let mut setfacl = Command::new("setfacl");
                assert!(
                    setfacl
                        .arg("-b")
                        .arg(self.at(name))
                        .status()
                        .unwrap()
                        .success()
                );
            }
            self.set(name, Change::Mode(0o755));
        }
        let _ = fs::remove_file(self.link());
    }

    /// Installs the helper with the program there.
    fn install(&self, program: &Path, more: &[&str]) -> Ran {
        let mut command = Command::new(program);
        command
            .args(["install-helpers", "--sbin"])
            .arg(self.at("sbin"));
        command.args(more).output().unwrap().into()
    }

    fn with_copy(&self) -> String {
        format!("--copy={}", self.at("local").display())
    }

    /// The names in the directory for copies.
    fn copied(&self) -> Vec<String> {
        let names = fs::read_dir(self.at("local")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }
}

#[test]
fn the_helper_of_root_is_a_program_that_only_root_can_change() {
    if !throughline_testkit::tier::as_root() {
        return throughline_testkit::left_out!("only root installs what root runs");
    }
    let place = Place::new();
    let (program, copy) = (place.program(), place.at("local/throughline"));
    // What is changed, and what the refusal says of it; nothing if it is none.
    let cases: [(&str, Change, Option<&str>); 13] = [
        (
            "way/bin/throughline",
            Change::Owner,
            Some("belongs to user 61235"),
        ),
        ("way/bin", Change::Owner, Some("belongs to user 61235")),
        ("way", Change::Owner, Some("belongs to user 61235")),
        (
            "way/bin/throughline",
            Change::Mode(0o775),
            Some("written to by group 0"),
        ),
        (
            "way/bin/throughline",
            Change::Mode(0o757),
            Some("written to by all users"),
        ),
        (
            "way/bin",
            Change::Mode(0o775),
            Some("written to by group 0"),
        ),
        (
            "way/bin",
            Change::Mode(0o757),
            Some("written to by all users"),
        ),
        ("way", Change::Mode(0o777), Some("written to by all users")),
        (
            "way/bin/throughline",
            Change::Acl,
            Some("written to by group 0"),
        ),
        ("way", Change::Acl, Some("written to by group 0")),
        // As in /tmp, nobody else may remove what root has there.
        ("way", Change::Mode(0o1777), None),
        ("way/bin/throughline", Change::Mode(0o4711), None),
        ("way/bin/throughline", Change::Mode(0o700), None),
    ];
    for (name, change, refused) in cases {
        if matches!(change, Change::Acl) && !has(&["setfacl"]) {
            continue;
        }
        place.reset();
        place.set(name, change);
        let ran = place.install(&program, &[]);
        let Some(words) = refused else {
            assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
            assert_eq!(fs::read_link(place.link()).unwrap(), program);
            continue;
        };
        assert_eq!(ran.code, Some(1), "{name}: {}", ran.text());
        let path = place.at(name).display().to_string();
        for words in [&format!("'{path}' "), words, "--copy", "/usr/local/bin"] {
            assert!(
                ran.stderr.contains(words),
                "{name}, {words}: {}",
                ran.stderr
            );
        }
        assert!(!place.link().is_symlink(), "{name}");
        let ran = place.install(&program, &[&place.with_copy()]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert_eq!(fs::read_link(place.link()).unwrap(), copy);
        let made = fs::symlink_metadata(&copy).unwrap();
        assert_eq!(
            (made.uid(), made.gid(), made.mode()),
            (0, 0, 0o100_755),
            "{name}"
        );
        assert!(
            fs::read(&copy).unwrap() == fs::read(&program).unwrap(),
            "{name}"
        );
        assert_eq!(place.copied(), ["throughline"], "{name}");
    }
}

#[test]
fn a_copy_goes_where_only_root_can_change_it_and_replaces_what_has_its_name() {
    if !throughline_testkit::tier::as_root() {
        return throughline_testkit::left_out!("only root makes copies for root");
    }
    let place = Place::new();
    let program = place.program();
    let with_copy = place.with_copy();
    for change in [Change::Owner, Change::Mode(0o775), Change::Mode(0o757)] {
        place.reset();
        place.set("local", change);
        let ran = place.install(&program, &[&with_copy]);
        assert_eq!(ran.code, Some(1), "{}", ran.text());
        assert!(ran.stderr.contains("/local'"), "{}", ran.stderr);
        assert!(!place.link().is_symlink() && place.copied().is_empty());
    }
    place.reset();
    // A link of that name is replaced, and not followed.
    let other = place.at("other");
    fs::write(&other, "other").unwrap();
    symlink(&other, place.at("local/throughline")).unwrap();
    let ran = place.install(&program, &[&with_copy]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read(&other).unwrap(), b"other");
    // The copy installs itself again, and is found through a link that leads to it from anywhere.
    place.set("way", Change::Owner);
    let through = place.at("way/through");
    symlink(place.at("local/throughline"), &through).unwrap();
    let ran = place.install(&through, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = place.install(&through, &["--remove", &with_copy]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!place.link().is_symlink() && place.copied().is_empty());
}

#[test]
fn a_user_links_to_what_he_likes_in_directories_of_his_own() {
    if !throughline_testkit::tier::as_root() {
        return throughline_testkit::left_out!("only root runs programs as another user");
    }
    let place = Place::new();
    for name in ["way/bin", "sbin"] {
        place.set(name, Change::Owner);
    }
    place.set("way/bin", Change::Mode(0o777));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(place.program());
        let ran = command
            .args(arguments)
            .uid(USER)
            .gid(USER)
            .output()
            .unwrap();
        Ran::from(ran)
    };
    let sbin = place.at("sbin").display().to_string();
    let ran = run(&["install-helpers", "--sbin", &sbin]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(place.link().is_symlink());
    let ran = run(&["install-helpers", "--sbin", &sbin, &place.with_copy()]);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    assert!(place.copied().is_empty());
}

#[test]
fn root_is_told_of_a_name_for_all_that_leads_to_a_program_of_others() {
    if !throughline_testkit::tier::as_root() {
        return throughline_testkit::left_out!("only root installs what root runs");
    }
    let place = Place::new();
    place.set("way", Change::Owner);
    // A directory of everybody, and one that the program's owner can change anyway.
    for (dir, is_told) in [("sbin", true), ("way/bin", false)] {
        for command in ["install-fuse2fs", "install-mke2fs"] {
            let mut ran = Command::new(place.program());
            let ran = Ran::from(ran.arg(command).arg(place.at(dir)).output().unwrap());
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let told = ran.text().contains("belongs to user 61235");
            assert_eq!(told, is_told, "{command} {dir}: {}", ran.text());
        }
    }
}
