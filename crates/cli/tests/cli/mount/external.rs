//! A volume with its journal on another device, in commands and in a mount.

use throughline_testkit::kernel::Loop;
use throughline_testkit::{e2fs, program};

use super::{Point, skipped};
use crate::common::{Image, fails, ok, tools_are_missing};

const UUID: &str = "0a1b2c3d-0000-4000-8000-000000000001";

#[test]
fn an_external_journal_is_named_by_its_path() {
    if tools_are_missing() || !throughline_testkit::kernel::may_use_loops() {
        return;
    }
    let image = Image::new("1M", &["-t", "ext2"]);
    let journal = image.sibling("journal");
    let args = ["-b", "1024", "-O", "journal_dev", "-U", UUID];
    assert!(e2fs::mke2fs(&journal, "8M", &args));
    let Some(device) = Loop::new(&journal, &[]) else {
        return;
    };
    let place = format!("device={}", device.node());
    let args = ["-t", "ext4", "-b", "1024", "-J", &place];
    std::fs::remove_file(image.path()).unwrap();
    assert!(e2fs::mke2fs(&image.path(), "64M", &args));
    device.detach();
    let check = || {
        let mut check = e2fs::tool("e2fsck");
        check.args(["-fn", "-j"]).arg(&journal).arg(image.path());
        program::run(&mut check, e2fs::LIMIT).good("e2fsck");
    };
    let journal = journal.to_str().unwrap();
    let source = image.sibling("source");
    std::fs::write(&source, "text").unwrap();
    let copy = ["cp", source.to_str().unwrap(), &image.at("/file")];
    fails(copy, 1, "--journal PATH");
    ok([&["--journal", journal][..], &copy].concat());
    check();
    // A closed volume is read without it.
    assert_eq!(ok(["cat", &image.at("/file")]), "text");
    let other = image.sibling("other");
    std::fs::write(&other, [0; 4096]).unwrap();
    let wrong = [&["--journal", other.to_str().unwrap()][..], &copy].concat();
    fails(wrong, 1, "holds no external journal");
    if skipped() {
        return;
    }
    let options = format!("journal_path={journal}");
    let point = Point::new(&image, "point");
    super::ok(["mount", "-o", &options, image.str(), point.str()]);
    std::fs::write(point.path("mounted"), "more").unwrap();
    super::ok(["umount", point.str()]);
    check();
    assert_eq!(ok(["cat", &image.at("/mounted")]), "more");
}
