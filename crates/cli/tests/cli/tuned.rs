//! Options for the I/O path, `tune`, and copies from host to host.

use crate::common::{Image, noise, ok, run, tools_are_missing};

#[test]
fn settings_are_shown_and_wrong_ones_refused() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let path = image.str();
    let settings = [
        "--cache=8M",
        "--dirty-limit=2M",
        "--dirty-background=1M",
        "--readahead=128K",
        "--bio-target=64K",
    ];
    for command in ["info", "tune"] {
        let shown = run(settings.iter().copied().chain([command, "--json", path])).json();
        let one = if command == "info" { &shown[0] } else { &shown };
        let cache = &one["cache"];
        assert_eq!(cache["budget_bytes"], 8 << 20, "{command}");
        assert_eq!(cache["dirty_limit_bytes"], 2 << 20, "{command}");
        assert_eq!(cache["dirty_background_bytes"], 1 << 20, "{command}");
        assert_eq!(cache["readahead_max_bytes"], 128 << 10, "{command}");
    }
    let text = ok(["tune", "--measure", path]);
    for word in [
        "Cache:",
        "Dirty memory:",
        "Readahead:",
        "I/O size:",
        "MiB/s",
    ] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    for wrong in [
        &["--bio-target=0"][..],
        &["--bio-target=1"],
        &["--bio-target=9G"],
        &["--bio-target=513"],
        &["--cache=0"],
        &["--cache=12"],
        &["--cache=1023K"],
        &["--dirty-limit=255K"],
        &["--cache=1M", "--dirty-limit=2M"],
        &["--dirty-limit=many"],
        &["--dirty-limit=1M", "--dirty-background=2M"],
        &["--readahead=-1"],
    ] {
        let ran = run(wrong.iter().copied().chain(["info", path]));
        assert_eq!(ran.code, Some(2), "{wrong:?}: {}", ran.stderr);
    }
}

#[test]
fn a_file_that_is_too_small_is_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small");
    std::fs::write(&path, b"x").unwrap();
    let path = path.to_str().unwrap();
    assert!(ok(["tune", "--readahead=0", path]).contains("none"));
    let ran = run(["tune", "--measure", path]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("too small"), "{}", ran.stderr);
}

#[test]
fn direct_and_buffered_copies_are_the_same() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let source = image.sibling("source");
    let data = noise(3_000_001, 5);
    std::fs::write(&source, &data).unwrap();
    for (way, name) in [("--direct", "/direct"), ("--cache=1M", "/small")] {
        ok([way, "cp", source.to_str().unwrap(), &image.at(name)]);
        assert_eq!(image.contents(name), data, "{way}");
        let back = image.sibling("back");
        ok([way, "cp", &image.at(name), back.to_str().unwrap()]);
        assert_eq!(std::fs::read(&back).unwrap(), data, "{way}");
    }
    image.assert_clean();
}

#[test]
fn plain_files_are_copied_with_their_holes_and_not_onto_themselves() {
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let data = noise(2_500_001, 9);
    let file = std::fs::File::create(&from).unwrap();
    file.write_all_at(&data, 64 << 20).unwrap();
    file.set_len((80 << 20) + 3).unwrap();
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o640)).unwrap();
    let (from_text, to_text) = (from.to_str().unwrap(), to.to_str().unwrap());
    ok(["cp", "-qa", from_text, to_text]);
    let (one, other) = (from.metadata().unwrap(), to.metadata().unwrap());
    assert_eq!((other.len(), other.mode()), (one.len(), one.mode()));
    assert_eq!(other.modified().unwrap(), one.modified().unwrap());
    assert!(std::fs::read(&to).unwrap() == std::fs::read(&from).unwrap());
    if one.blocks() * 512 < 40 << 20 {
        assert!(other.blocks() * 512 < 40 << 20, "the holes were filled");
    }
    let same = run(["cp", from_text, from_text]);
    assert_eq!(same.code, Some(1));
    assert!(same.stderr.contains("are the same file"), "{}", same.stderr);
}
