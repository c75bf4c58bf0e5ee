//! Corrupt and hostile images.

use std::fs;

use crate::common::{Image, fails, ok, run, tools_are_missing};

/// Replaces a name in every directory of the image. Both names have the same length; the image has no
/// checksums.
fn rename_on_disk(image: &Image, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut replaced = 0;
    image.patch(|bytes| {
        for at in 0..bytes.len() - from.len() {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
                replaced += 1;
            }
        }
    });
    assert!(replaced > 0, "the name is not on the disk");
}

#[test]
fn a_name_that_is_there_twice_is_reported() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2"]);
    ok(["mkdir", &image.at("/tree")]);
    let names = ["first", "other", "third"].map(|name| image.at(&format!("/tree/{name}")));
    ok(["touch"]
        .into_iter()
        .chain(names.iter().map(String::as_str)));
    rename_on_disk(&image, b"other", b"first");
    let ran = run(["cp", "-r", &image.at("/tree"), &image.at("/copy")]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("/copy/first") && ran.stderr.contains("File exists"),
        "{}",
        ran.stderr
    );
    // The other files are copied.
    assert_eq!(ok(["ls", &image.at("/copy")]), "first\nthird\n");
}

#[test]
fn names_with_slashes_do_not_lead_out() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2"]);
    ok(["mkdir", &image.at("/tree")]);
    ok(["touch", &image.at("/tree/QQvictim"), &image.at("/victim")]);
    rename_on_disk(&image, b"QQvictim", b"./victim");
    rename_on_disk(&image, b"./victim", b"../evil!");
    let target = image.sibling("target");
    fs::create_dir(&target).unwrap();
    let ran = fails(
        ["cp", "-r", &image.at("/tree"), target.to_str().unwrap()],
        1,
        "corrupt",
    );
    assert!(ran.stderr.contains("e2fsck"), "{}", ran.stderr);
    assert!(!target.join("evil!").exists() && !image.sibling("evil!").exists());
    fails(["rm", "-r", &image.at("/tree")], 1, "corrupt");
    ok(["stat", &image.at("/victim")]);
}

#[test]
fn a_link_and_a_directory_of_one_name_do_not_lead_out() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2"]);
    let outside = image.sibling("outside");
    fs::create_dir(&outside).unwrap();
    ok(["mkdir", "-p", &image.at("/tree/trap2")]);
    ok(["touch", &image.at("/tree/trap2/planted")]);
    ok([
        "ln",
        "-s",
        outside.to_str().unwrap(),
        &image.at("/tree/trap1"),
    ]);
    rename_on_disk(&image, b"trap2", b"trap1");
    let target = image.sibling("target");
    // Whatever the exit code, nothing is created outside of the target.
    let ran = run(["cp", "-r", &image.at("/tree"), target.to_str().unwrap()]);
    assert!(!outside.join("planted").exists(), "{}", ran.stderr);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
}

#[test]
fn a_directory_inside_itself_ends() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2"]);
    ok(["mkdir", "-p", &image.at("/a/b")]);
    let ino = run(["--json", "stat", &image.at("/a")]).json()[0]["ino"]
        .as_u64()
        .unwrap();
    image.debugfs_write(&format!("link <{ino}> /a/b/loop"));
    for arguments in [
        vec!["ls", "-R"],
        vec!["du"],
        vec!["tree"],
        vec!["chmod", "-R", "700"],
        vec!["chown", "-R", "0"],
    ] {
        let place = image.at("/a");
        let ran = run(arguments.iter().copied().chain([place.as_str()]));
        assert_eq!(ran.code, Some(1), "{arguments:?}");
        assert!(
            ran.stderr.contains("second time"),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
    let out = image.sibling("out");
    fails(
        ["cp", "-r", &image.at("/a"), out.to_str().unwrap()],
        1,
        "second time",
    );
    fails(["rm", "-r", &image.at("/a")], 1, "second time");
}

#[test]
fn many_directories_that_cannot_be_read_are_not_a_deep_one() {
    if tools_are_missing() {
        return;
    }
    const COUNT: usize = 2100;
    let image = Image::new("16M", &["-t", "ext2", "-b", "1024", "-N", "4000"]);
    let tree = image.at("/tree");
    let inside = (0..COUNT).map(|number| format!("{tree}/{number}"));
    ok([String::from("mkdir"), tree.clone()]
        .into_iter()
        .chain(inside));
    let ino = run(["--json", "stat", &tree]).json()[0]["ino"]
        .as_u64()
        .unwrap() as u32;
    // In each directory, the entry '..' follows the twelve bytes of '.'; its record length is set to 0.
    let mut parent = ino.to_le_bytes().to_vec();
    parent.extend([0xf4, 0x03, 2, 2, b'.', b'.', 0, 0]);
    let mut spoilt = 0;
    image.patch(|bytes| {
        for block in bytes.chunks_exact_mut(1024) {
            if block[6..9] == [1, 2, b'.'] && block[12..24] == parent {
                block[16] = 0;
                block[17] = 0;
                spoilt += 1;
            }
        }
    });
    assert_eq!(spoilt, COUNT);
    for arguments in [
        vec!["tree"],
        vec!["tree", "--json"],
        vec!["du"],
        vec!["ls", "-R"],
        vec!["chmod", "-R", "700"],
        vec!["chown", "-R", "0"],
    ] {
        // Writers record the damage, and the next one would then demand e2fsck. So clear that state.
        image.debugfs_write("ssv state 1");
        let ran = run(arguments.iter().copied().chain([tree.as_str()]));
        assert_eq!(ran.code, Some(1), "{arguments:?}");
        assert_eq!(
            ran.stderr.matches("corrupt").count(),
            COUNT,
            "{arguments:?}"
        );
        assert!(
            !ran.stderr.contains("nested directories"),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn damaged_metadata_is_named() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/dir")]);
    ok(["touch", &image.at("/dir/file")]);
    let blocks = image.debugfs("blocks /dir");
    let block: usize = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let stats = image.debugfs("stats");
    let line = stats
        .lines()
        .find(|line| line.starts_with("Block size:"))
        .unwrap();
    let block_bytes: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
    image.patch(|bytes| bytes[block * block_bytes + 30] ^= 0xff);
    let ran = fails(["ls", &image.at("/dir")], 1, "corrupt");
    assert!(
        ran.stderr.contains(&format!("block {block}")) && ran.stderr.contains("e2fsck"),
        "{}",
        ran.stderr
    );
    ok(["ls", &image.at("/")]);
}

/// What cannot be read is missing in an archive, and all else is there.
#[test]
fn an_archive_has_what_can_be_read() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2", "-b", "1024"]);
    ok(["mkdir", &image.at("/broken"), &image.at("/sound")]);
    for path in ["/broken/gone", "/sound/first", "/wrong", "/last"] {
        ok(["cp", "Cargo.toml", &image.at(path)]);
    }
    image.debugfs_write("set_inode_field /wrong block[0] 0xfffffff0");
    image.patch(|bytes| {
        let at = bytes.windows(4).position(|window| window == b"gone");
        let at = at.expect("the name is on the disk");
        bytes[at - 4..at - 2].copy_from_slice(&[3, 0]);
    });
    let archive = image.sibling("out.tar");
    let out = archive.to_str().unwrap();
    for words in [&["tar", "-o", out][..], &["tar"]] {
        let ran = run([words, &[&image.at("/")]].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        for said in ["broken", "wrong", "incomplete, by 2 files"] {
            assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
        }
        if words == ["tar"] {
            fs::write(&archive, &ran.stdout).unwrap();
        }
        let packed = image.sibling("packed");
        ok(["-q", "pack", "-F", out, "-o", packed.to_str().unwrap()]);
        let listed = ok(["find", &format!("{}:/", packed.display()), "-type", "f"]);
        assert_eq!(listed.matches("/first").count(), 1, "{listed}");
        assert_eq!(listed.matches("/last").count(), 1, "{listed}");
        assert_eq!(listed.lines().count(), 2, "{listed}");
        fs::remove_file(&archive).unwrap();
    }
}

/// The readable entries of a damaged directory are listed and copied; the lost ones are reported, and the
/// command fails.
#[test]
fn the_readable_part_of_a_directory_is_listed_and_copied() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2", "-b", "1024", "-O", "^dir_index"]);
    let tree = image.at("/tree");
    ok(["mkdir", &tree]);
    let name = |number: u32| format!("a-name-that-is-somewhat-long-{number:03}");
    let names: Vec<String> = (0..60).map(name).collect();
    ok([String::from("touch")]
        .into_iter()
        .chain(names.iter().map(|name| format!("{tree}/{name}"))));
    // Damages the length of one record in the middle of a block. This name, and those after it in the block,
    // are lost.
    let damaged = name(30);
    let mut lost = 0;
    image.patch(|bytes| {
        let at = bytes
            .windows(damaged.len())
            .position(|window| window == damaged.as_bytes());
        let at = at.expect("the name is on the disk");
        bytes[at - 4..at - 2].copy_from_slice(&[3, 0]);
        let end = (at / 1024 + 1) * 1024;
        let behind = &bytes[at..end];
        lost = names
            .iter()
            .filter(|name| behind.windows(name.len()).any(|w| w == name.as_bytes()))
            .count();
    });
    assert!((1..40).contains(&lost), "{lost} names follow the damage");
    let listed = fails(["ls", &tree], 1, "corrupt");
    assert_eq!(listed.text().lines().count(), names.len() - lost);
    assert!(listed.text().contains(&name(0)) && listed.text().contains(&name(59)));
    assert_eq!(
        listed.stderr.matches("corrupt").count(),
        1,
        "{}",
        listed.stderr
    );
    let out = image.sibling("out");
    let copied = fails(["cp", "-r", &tree, out.to_str().unwrap()], 1, "corrupt");
    assert_eq!(fs::read_dir(&out).unwrap().count(), names.len() - lost);
    assert_eq!(
        copied.stderr.matches("corrupt").count(),
        1,
        "{}",
        copied.stderr
    );
    ok(["stat", &format!("{tree}/{}", name(59))]);
    // The name may be one of the lost ones.
    fails(["stat", &format!("{tree}/{damaged}")], 1, "corrupt");
    fails(["touch", &format!("{tree}/new")], 1, "corrupt");
}
