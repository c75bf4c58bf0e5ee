//! Compressed images are read as they are, and never written.

use std::fs;

use throughline_testkit::program::{self, has};

use crate::common::{Image, fails, noise, ok, run, tools_are_missing};

#[test]
fn compressed_images_are_read() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "small"]);
    let source = image.sibling("source");
    fs::write(&source, noise(300_000, 5)).unwrap();
    ok(["cp", source.to_str().unwrap(), &image.at("/file")]);
    for (tool, ending) in [
        ("gzip", "gz"),
        ("xz", "xz"),
        ("zstd", "zst"),
        ("bzip2", "bz2"),
    ] {
        if !has(&[tool]) {
            throughline_testkit::missing!("{tool} is not installed");
            continue;
        }
        let made = program::command(tool)
            .arg("-kq")
            .arg(image.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let packed = image.path().with_file_name(format!(
            "{}.{ending}",
            image.path().file_name().unwrap().to_str().unwrap()
        ));
        let before = fs::read(&packed).unwrap();
        let name = packed.to_str().unwrap();
        let at = |path: &str| format!("{name}:{path}");
        assert!(ok(["ls", &at("/")]).contains("file"));
        let back = image.sibling("back");
        ok(["cp", &at("/file"), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == fs::read(&source).unwrap());
        let info = &run(["info", "--json", name]).json()[0];
        assert_eq!(
            (&info["label"], &info["image_format"]),
            (&"small".into(), &"compressed".into())
        );
        for refused in [
            vec!["cp", source.to_str().unwrap(), &at("/new")],
            vec!["mkdir", &at("/new")],
            vec!["mount", name, image.sibling("").to_str().unwrap()],
        ] {
            fails(&refused, 1, "decompress it first");
        }
        // Damaged in the middle, and cut short.
        for damaged in [
            &before[..before.len() / 2],
            &[&before[..900], &[0x55; 64], &before[964..]].concat(),
        ] {
            fs::write(&packed, damaged).unwrap();
            fails(["ls", &at("/")], 1, "damaged or truncated");
        }
        fs::remove_file(&packed).unwrap();
    }
}

#[test]
fn a_volume_that_begins_like_a_compressed_file_is_a_volume() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    image.patch(|bytes| bytes[..3].copy_from_slice(&[0x1f, 0x8b, 8]));
    ok(["mkdir", &image.at("/new")]);
    assert!(ok(["ls", &image.at("/")]).contains("new"));
}
