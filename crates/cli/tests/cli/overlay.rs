//! Overlays: `--overlay`, and the commands of `overlay`. The judges are `qemu-img`, `e2fsck -fn`, and that
//! the base keeps its bytes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::common::{fsck, noise, ok, qemu_in, qemu_is_missing, throughline, tools_are_missing};
use tempfile::TempDir;

struct Place {
    folder: TempDir,
}

impl Place {
    /// With a base, and its bytes; `None` if a tool is missing.
    fn new() -> Option<(Place, Vec<u8>)> {
        if tools_are_missing() {
            return None;
        }
        if qemu_is_missing() {
            return None;
        }
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.path("tree")).unwrap();
        fs::create_dir(place.path("tree/gone")).unwrap();
        fs::write(place.path("tree/kept"), noise(300_000, 1)).unwrap();
        fs::write(place.path("tree/changed"), "old\n").unwrap();
        fs::write(place.path("tree/gone/file"), "gone\n").unwrap();
        ok([
            "pack",
            "-q",
            "--size",
            "16M",
            &place.text("tree"),
            "-o",
            &place.text("base.img"),
        ]);
        let bytes = fs::read(place.path("base.img")).unwrap();
        Some((place, bytes))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn qemu(&self, arguments: &[&str]) -> String {
        qemu_in(self.folder.path(), arguments)
    }

    /// The disk that an overlay shows is sound, by other programs.
    fn check(&self, overlay: &str) {
        self.qemu(&["check", "-q", overlay]);
        self.qemu(&["convert", "-O", "raw", overlay, "shown.img"]);
        fsck(&self.path("shown.img"));
    }

    /// Lays `over.qcow2` over another base.
    fn rebase(&self, base: &str) {
        let [backing, overlay, base] = [".", "over.qcow2", base].map(|name| self.text(name));
        ok(["overlay", "rebase", "--backing", &backing, &overlay, &base]);
    }

    /// `over.qcow2` shows the same as `before.img`.
    fn assert_shows_before(&self) {
        let formats = ["-f", "qcow2", "-F", "raw"];
        self.qemu(&[&["compare"], &formats[..], &["over.qcow2", "before.img"]].concat());
    }

    fn changes(&self, overlay: &str) -> String {
        ok([
            "overlay",
            "diff",
            "--backing",
            &self.text("."),
            &self.text(overlay),
        ])
    }

    /// Adds, changes and deletes files through an overlay.
    fn change(&self, overlay: &str, base: &str) {
        let overlay = self.text(overlay);
        fs::write(self.path("new"), "new\n").unwrap();
        let inside = |path: &str| format!("{}:{path}", self.text(base));
        let with = ["--overlay", overlay.as_str()];
        ok(["cp", with[0], with[1], &self.text("new"), &inside("/added")]);
        ok([
            "cp",
            with[0],
            with[1],
            &self.text("new"),
            &inside("/changed"),
        ]);
        ok(["rm", "-r", with[0], with[1], &inside("/gone")]);
        assert_eq!(ok(["cat", with[0], with[1], &inside("/changed")]), "new\n");
    }
}

fn fails<'a>(arguments: impl IntoIterator<Item = &'a str>, code: i32) -> String {
    crate::common::fails(arguments, code, "throughline: ").stderr
}

const CHANGES: &str = "M /changed\nD /gone\nD /gone/file\nA /added\n";

#[test]
fn changes_go_to_the_overlay() {
    let Some((place, base)) = Place::new() else {
        return;
    };
    place.change("over.qcow2", "base.img");
    assert!(
        fs::read(place.path("base.img")).unwrap() == base,
        "the base has changed"
    );
    let cat = format!("{}:/changed", place.text("base.img"));
    assert_eq!(ok(["cat", &cat]), "old\n");
    place.check("over.qcow2");
    assert_eq!(place.changes("over.qcow2"), CHANGES);
    let ranges = ok([
        "overlay",
        "diff",
        "--ranges",
        "--json",
        "--backing",
        &place.text("base.img"),
        &place.text("over.qcow2"),
    ]);
    let ranges: Vec<serde_json::Value> = serde_json::from_str(&ranges).unwrap();
    assert!(!ranges.is_empty());
    let shown = fs::read(place.path("shown.img")).unwrap();
    let mut at = 0;
    for range in &ranges {
        let start = range["start_bytes"].as_u64().unwrap() as usize;
        assert!(shown[at..start] == base[at..start], "bytes {at} to {start}");
        at = start + range["len_bytes"].as_u64().unwrap() as usize;
    }
    assert!(shown[at..] == base[at..]);
    // QEMU finds the base, whose name is relative.
    let info = place.qemu(&["info", "over.qcow2"]);
    assert!(info.contains("backing file: base.img"), "{info}");
    assert!(info.contains("backing file format: raw"), "{info}");
}

#[test]
fn an_overlay_in_another_folder_over_a_partition() {
    let Some((place, _)) = Place::new() else {
        return;
    };
    fs::create_dir(place.path("elsewhere")).unwrap();
    fs::write(place.path("elsewhere/new"), "one\n").unwrap();
    ok([
        "pack",
        "-q",
        "--size",
        "16M",
        "--partition",
        "gpt",
        &place.text("tree"),
        "-o",
        &place.text("disk.img"),
    ]);
    let base = fs::read(place.path("disk.img")).unwrap();
    let overlay = place.text("elsewhere/over.qcow2");
    let inside = format!("{}@1:/one", place.text("disk.img"));
    ok([
        "cp",
        "--overlay",
        &overlay,
        &place.text("elsewhere/new"),
        &inside,
    ]);
    assert!(
        fs::read(place.path("disk.img")).unwrap() == base,
        "the base has changed"
    );
    assert_eq!(place.changes("elsewhere/over.qcow2"), "A /one\n");
    let of_overlay = format!("{overlay}@1:/one");
    let backing = place.text("disk.img");
    assert_eq!(ok(["cat", "--backing", &backing, &of_overlay]), "one\n");
    // Without leave, an overlay opens no other file.
    let said = fails(["overlay", "diff", &overlay], 1);
    assert!(said.contains("--backing"), "{said}");
}

/// What a killed `commit` was writing is gone, at the latest with the next one.
#[test]
fn a_killed_commit_leaves_nothing() {
    let Some((place, _)) = Place::new() else {
        return;
    };
    fs::File::options()
        .write(true)
        .open(place.path("base.img"))
        .unwrap()
        .write_all_at(&noise(48 << 20, 5), 16 << 20)
        .unwrap();
    place.qemu(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        "base.img",
        "-F",
        "raw",
        "over.qcow2",
    ]);
    let [backing, overlay] = [".", "over.qcow2"].map(|name| place.text(name));
    let commit = |to: &str| {
        let mut command = throughline();
        command.args(["overlay", "commit", "-q", "--backing", &backing, &overlay]);
        command.arg(place.text(to)).spawn().unwrap()
    };
    let names = || {
        let found = fs::read_dir(place.folder.path()).unwrap();
        let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let mut child = commit("new.img");
    // It has begun when it has a file in the folder open that is not there, or is new.
    let open = format!("/proc/{}/fd", child.id());
    let has_begun = || {
        let links = fs::read_dir(&open).into_iter().flatten().flatten();
        let mut targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        targets.any(|it| {
            it.starts_with(place.folder.path()) && !before.iter().any(|name| it.ends_with(name))
        })
    };
    while !has_begun() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it was killed too late");
    assert!(commit("second.img").wait().unwrap().success());
    fs::remove_file(place.path("second.img")).unwrap();
    assert_eq!(names(), before);
}

#[test]
fn commit_and_rebase() {
    let Some((place, base)) = Place::new() else {
        return;
    };
    place.change("over.qcow2", "base.img");
    let backing = place.text(".");
    let [overlay, new] = ["over.qcow2", "new.img"].map(|name| place.text(name));
    ok([
        "overlay",
        "commit",
        "-q",
        "--backing",
        &backing,
        &overlay,
        &new,
    ]);
    fsck(&place.path("new.img"));
    place.qemu(&["compare", "over.qcow2", "new.img"]);
    let said = fails(
        ["overlay", "commit", "--backing", &backing, &overlay, &new],
        1,
    );
    assert!(said.contains("exists"), "{said}");

    // Over the new base, it shows the same.
    place.qemu(&["convert", "-O", "raw", "over.qcow2", "before.img"]);
    place.rebase("new.img");
    place.assert_shows_before();
    let info = place.qemu(&["info", "over.qcow2"]);
    assert!(info.contains("backing file: new.img"), "{info}");
    assert_eq!(place.changes("over.qcow2"), "");

    // And back, over a base that differs.
    place.rebase("base.img");
    place.assert_shows_before();
    place.check("over.qcow2");
    assert_eq!(place.changes("over.qcow2"), CHANGES);
    assert!(
        fs::read(place.path("base.img")).unwrap() == base,
        "the base has changed"
    );

    let said = fails(
        [
            "overlay",
            "rebase",
            "--backing",
            &backing,
            &overlay,
            &overlay,
        ],
        1,
    );
    assert!(said.contains("the overlay itself"), "{said}");
}

/// Snapshots in an overlay show its base, too: it is not replaced.
#[test]
fn an_overlay_with_snapshots_keeps_its_base() {
    let Some((place, _)) = Place::new() else {
        return;
    };
    place.change("over.qcow2", "base.img");
    let mut other = fs::read(place.path("base.img")).unwrap();
    other[8 << 20..9 << 20].fill(7);
    fs::write(place.path("other.img"), other).unwrap();
    place.qemu(&["snapshot", "-c", "one", "over.qcow2"]);
    let before = fs::read(place.path("over.qcow2")).unwrap();
    let [backing, overlay, other] = [".", "over.qcow2", "other.img"].map(|name| place.text(name));
    let said = fails(
        ["overlay", "rebase", "--backing", &backing, &overlay, &other],
        1,
    );
    assert!(said.contains("snapshots"), "{said}");
    // Before anything is copied.
    assert!(fs::read(place.path("over.qcow2")).unwrap() == before);
    let info = place.qemu(&["info", "over.qcow2"]);
    assert!(info.contains("backing file: base.img"), "{info}");
}

/// A command that fails leaves no empty overlay that it has made, and none of its changes is lost.
#[test]
fn an_overlay_made_for_nothing_is_removed() {
    let Some((place, base)) = Place::new() else {
        return;
    };
    let overlay = place.text("over.qcow2");
    let inside = |path: &str| format!("{}:{path}", place.text("base.img"));
    let none = place.text("no-such-file");
    let fails = |arguments: &[&str]| {
        let arguments = arguments.iter().copied();
        fails(arguments.chain(["--overlay", &overlay]), 1)
    };
    fails(&["cp", &none, &inside("/")]);
    assert!(!place.path("over.qcow2").exists());
    fails(&["mkdir", &inside("/kept")]);
    fails(&["rm", &inside("/none")]);
    assert!(!place.path("over.qcow2").exists());
    // An image that holds no volume.
    fs::write(place.path("zeros"), vec![0; 1 << 20]).unwrap();
    fails(&["mkdir", &format!("{}:/x", place.text("zeros"))]);
    assert!(!place.path("over.qcow2").exists());

    // One of two was copied.
    fails(&["cp", &place.text("tree/changed"), &none, &inside("/gone/")]);
    let cat = ["cat", "--overlay", &overlay, &inside("/gone/changed")];
    assert_eq!(ok(cat), "old\n");
    // One that was there before stays, also if it is empty.
    fs::remove_file(&overlay).unwrap();
    place.qemu(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        "base.img",
        "-F",
        "raw",
        "over.qcow2",
    ]);
    fails(&["mkdir", &inside("/kept")]);
    assert!(place.path("over.qcow2").exists());
    assert!(
        fs::read(place.path("base.img")).unwrap() == base,
        "the base has changed"
    );
}

/// Names of bases of any length, on both sides of the first sector.
#[test]
fn bases_with_long_names() {
    let Some((place, _)) = Place::new() else {
        return;
    };
    place.change("over.qcow2", "base.img");
    place.qemu(&["convert", "-O", "raw", "over.qcow2", "before.img"]);
    let deep = "d".repeat(200);
    fs::create_dir(place.path(&deep)).unwrap();
    for len in [100, 250, 20, 240, 255] {
        let name = format!("{deep}/{}", "b".repeat(len));
        fs::copy(place.path("base.img"), place.path(&name)).unwrap();
        place.rebase(&name);
        place.assert_shows_before();
        place.check("over.qcow2");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let Some((place, base)) = Place::new() else {
        return;
    };
    place.change("over.qcow2", "base.img");
    fs::copy(place.path("base.img"), place.path("other.img")).unwrap();
    let overlay = place.text("over.qcow2");
    let other = format!("{}:/x", place.text("other.img"));
    // Writing to another image with it.
    let said = fails(["mkdir", "--overlay", &overlay, &other], 1);
    assert!(
        said.contains("base.img") && said.contains("rebase"),
        "{said}"
    );
    assert!(
        fs::read(place.path("other.img")).unwrap() == base,
        "the other image was written"
    );
    // What is no overlay.
    for name in ["new", "base.img"] {
        let said = fails(["mkdir", "--overlay", &place.text(name), &other], 1);
        assert!(said.contains("not a qcow2 image"), "{said}");
        let said = fails(["overlay", "diff", &place.text(name)], 1);
        assert!(said.contains("not a qcow2 image"), "{said}");
    }
    // One writer at a time, and none to the base meanwhile.
    let said = fails(["mkdir", "--overlay", &place.text("no/such"), &other], 1);
    assert!(said.contains("No such file"), "{said}");
    // A base that is gone.
    fs::remove_file(place.path("base.img")).unwrap();
    let said = fails(
        ["overlay", "diff", "--backing", &place.text("."), &overlay],
        1,
    );
    assert!(said.contains("base.img"), "{said}");
}
