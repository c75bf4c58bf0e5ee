//! `resize`: what it says, its exit codes, and that it says before it does.

use crate::common::{Image, fails, ok, run, tools_are_missing};

#[test]
fn an_image_grows_and_its_file_with_it() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let path = image.str();
    let before = std::fs::read(image.path()).unwrap();
    let planned = run(["resize", "-n", "--json", path, "+100M"]).json();
    assert!(std::fs::read(image.path()).unwrap() == before);
    assert_eq!(planned["dry_run"], true);
    assert!(ok(["resize", "-n", path, "+100M"]).contains("would grow from"));
    let done = run(["resize", "--json", path, "+100M"]).json();
    for name in ["blocks_before", "blocks", "groups", "inodes"] {
        assert_eq!(planned[name], done[name], "{name}");
    }
    let bytes = done["blocks"].as_u64().unwrap() * done["block_bytes"].as_u64().unwrap();
    assert_eq!(image.path().metadata().unwrap().len(), bytes);
    assert!(ok(["resize", path, "max"]).contains("has "));
    image.assert_clean();
}

#[test]
fn an_image_shrinks_and_its_file_with_it() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let path = image.str();
    let before = std::fs::read(image.path()).unwrap();
    let planned = run(["resize", "-n", "--json", path, "min"]).json();
    assert!(std::fs::read(image.path()).unwrap() == before);
    assert!(ok(["resize", "-n", path, "min"]).contains("would shrink from"));
    let done = run(["resize", "--json", path, "min"]).json();
    for name in ["blocks_before", "blocks", "groups", "inodes"] {
        assert_eq!(planned[name], done[name], "{name}");
    }
    let bytes = done["blocks"].as_u64().unwrap() * done["block_bytes"].as_u64().unwrap();
    assert_eq!(image.path().metadata().unwrap().len(), bytes);
    let size = bytes.to_string();
    assert!(ok(["resize", path, &size]).contains("has "));
    // An interrupted run may leave the file longer than its volume.
    let file = std::fs::File::options()
        .write(true)
        .open(image.path())
        .unwrap();
    file.set_len(bytes + 4096).unwrap();
    drop(file);
    ok(["resize", path, &size]);
    assert_eq!(image.path().metadata().unwrap().len(), bytes);
    image.assert_clean();
}

#[test]
fn what_cannot_be_done_is_said() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let path = image.str();
    assert_eq!(run(["resize", path, "huge"]).code, Some(2));
    fails(["resize", path, "100K"], 1, "too small: at least");
    fails(["resize", path, "1"], 1, "too small: at least");
    fails(
        ["resize", "/dev/null/image", "1G"],
        1,
        "cannot change the size of",
    );
}

/// What is no volume is called by its name, with what to do next. One in a partition keeps within it.
#[test]
fn what_is_no_volume_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = path.to_str().unwrap();
    ok(["mkfs", "-q", "--partition", "gpt", disk, "20M"]);
    fails(["resize", disk, "+10M"], 1, "do not fit the device");
    std::fs::write(&path, "").unwrap();
    fails(["resize", disk, "10M"], 1, "throughline mkfs");
}
