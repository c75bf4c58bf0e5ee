//! `pack`: a directory of the host becomes an image.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::{assert_clean, fails, noise, ok, run, throughline, tools_are_missing};

/// A directory `source` of a temporary directory, and a path for an image beside it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        let source = place.source();
        fs::create_dir_all(source.join("etc/empty")).unwrap();
        fs::write(source.join("etc/motd"), "hello\n").unwrap();
        fs::write(source.join("large"), noise(3_000_000, 1)).unwrap();
        fs::hard_link(source.join("large"), source.join("etc/again")).unwrap();
        symlink("etc/motd", source.join("link")).unwrap();
        for at in 0..50 {
            fs::write(source.join(format!("file {at}")), noise(5000, at)).unwrap();
        }
        place
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn image(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Packs the source into an image of that name with these arguments.
    fn pack(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let image = self.image(name);
        let (source, out) = (self.source(), image.to_str().unwrap().to_owned());
        let first = ["pack", source.to_str().unwrap(), "-o", &out];
        let ran = run(first.iter().chain(arguments));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_clean(&image);
        image
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_directory_is_in_the_image_and_comes_out_again() {
    if tools_are_missing() {
        return;
    }
    let place = Place::new();
    for arguments in [
        &[][..],
        &["--size", "64M"],
        &["--size", "+10M", "-t", "ext2"],
    ] {
        let image = place.pack("image", arguments);
        let back = place.image("back");
        ok(["cp", "-a", &format!("{}:/.", text(&image)), text(&back)]);
        fs::remove_dir(back.join("lost+found")).unwrap();
        let differ = std::process::Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([place.source(), back.clone()])
            .output()
            .unwrap();
        assert!(differ.status.success(), "{arguments:?}: {differ:?}");
        let links = ok(["stat", "-c", "%h", &format!("{}:/large", text(&image))]);
        assert_eq!(links.trim(), "2");
        fs::remove_dir_all(back).unwrap();
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn the_same_sources_give_the_same_bytes_and_a_check_names_what_changed() {
    if tools_are_missing() {
        return;
    }
    let place = Place::new();
    let image = place.pack("image", &[]);
    let again = place.image("again");
    let source = place.source();
    let mut other = throughline();
    other.env("TZ", "Asia/Tokyo").env("LC_ALL", "C.UTF-8");
    other.args(["pack", text(&source), "-o", text(&again)]);
    assert!(other.output().unwrap().status.success());
    assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap());
    ok(["pack", text(&source), "--check", text(&image)]);

    let time = fs::metadata(source.join("file 7"))
        .unwrap()
        .modified()
        .unwrap();
    fs::write(source.join("file 7"), noise(5000, 99)).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(source.join("file 7"))
        .unwrap();
    file.set_modified(time).unwrap();
    let check = ["pack", text(&source), "--check", text(&image)];
    let ran = fails(check, 1, "differs");
    let found = ran.text();
    let lines: Vec<_> = found.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("UUID") && lines[1].ends_with("data of /file 7"),
        "{lines:?}"
    );
}

#[test]
fn what_cannot_be_packed_leaves_nothing() {
    let place = Place::new();
    let (source, image) = (place.source(), place.image("image"));
    let (source, image) = (text(&source), text(&image));
    let pack = |source: &str, more: &[&str], says: &str| {
        let words = ["pack", source, "-o", image].into_iter();
        fails(words.chain(more.iter().copied()), 1, says);
        assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1);
    };
    pack("nosuch", &[], "No such file");
    pack(
        &format!("{source}/large"),
        &[],
        "a source is a directory, a tar",
    );
    pack(source, &["--size", "1M"], "--size min");
    fs::write(image, "mine").unwrap();
    fails(["pack", source, "-o", image], 1, "-F");
    assert_eq!(fs::read(image).unwrap(), b"mine");
    let full = ["pack", source, "-o", "/dev/full"];
    fails(full, 1, "not a regular file");
}
