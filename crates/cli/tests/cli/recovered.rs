//! Images that were not closed: `replay`, commands that recover the image before writing, and `--noload`.

use std::fs;

use crate::common::{Image, fails, ok, run, tools_are_missing};

/// An image with a file of one block, whose journal holds other contents for that block.
fn with_a_journal_to_replay() -> Image {
    let image = Image::new("32M", &["-t", "ext4", "-b", "1024"]);
    let old = image.sibling("old");
    fs::write(&old, [b'o'; 1024]).unwrap();
    ok(["cp", old.to_str().unwrap(), &image.at("/f")]);
    let printed = image.debugfs("blocks /f");
    let block = printed.split_whitespace().last().unwrap().to_owned();
    let new = image.sibling("new");
    fs::write(&new, [b'n'; 1024]).unwrap();
    image.debugfs_write(&format!("jo\njw -b {block} {}\njc\n", new.display()));
    image
}

fn is_new(image: &Image) -> bool {
    image.contents("/f") == [b'n'; 1024]
}

#[test]
fn replay_recovers_and_reports_it() {
    if tools_are_missing() {
        return;
    }
    let image = with_a_journal_to_replay();
    let path = image.str();
    assert!(!is_new(&image));
    assert!(ok(["info", path]).contains("needs recovery"));
    let printed = ok(["replay", path]);
    assert!(printed.contains("1 transaction, 1 block"), "{printed}");
    assert!(is_new(&image));
    image.assert_clean();
    // If there is nothing to do, nothing is changed.
    let before = fs::read(path).unwrap();
    assert!(ok(["replay", path]).contains("nothing to recover"));
    assert!(fs::read(path).unwrap() == before);

    let image = with_a_journal_to_replay();
    let found = run([
        "replay".as_ref(),
        "--json".as_ref(),
        image.path().as_os_str(),
    ])
    .json();
    assert_eq!(found[0]["journal"]["blocks"], 1, "{found}");
    assert_eq!(found[0]["journal"]["transactions"], 1, "{found}");
    assert_eq!(
        (&found[0]["errors"], &found[0]["clean"]),
        (&false.into(), &true.into())
    );
}

#[test]
fn replay_ends_as_e2fsck_does() {
    if tools_are_missing() {
        return;
    }
    let image = with_a_journal_to_replay();
    let path = image.str();
    fails(["replay", "--noload", path], 2, "--noload");
    fails(["replay", "/no/such/image"], 8, "No such file");
    // A volume marked as damaged: its journal is still replayed.
    image.debugfs_write("ssv state 3");
    let ran = fails(["replay", path, "/no/such/image"], 4 | 8, "e2fsck -f");
    assert!(ran.text().contains("1 transaction"));
    assert!(is_new(&image));
    fails(["touch", &image.at("/g")], 1, "recorded errors");
    // Without a journal, there is nothing to replay.
    let image = Image::new("16M", &["-t", "ext2"]);
    image.debugfs_write("ssv state 0");
    let path = image.path();
    fails(["replay", path.to_str().unwrap()], 4, "not closed cleanly");
}

#[test]
fn writing_recovers_first_and_reading_sees_the_recovered_state() {
    if tools_are_missing() {
        return;
    }
    let image = with_a_journal_to_replay();
    let before = fs::read(image.path()).unwrap();
    assert_eq!(ok(["cat", &image.at("/f")]), "n".repeat(1024));
    assert_eq!(ok(["--noload", "cat", &image.at("/f")]), "o".repeat(1024));
    let archive = run(["tar", &image.at("/")]).stdout;
    let has = |letter: &[u8]| archive.windows(1024).any(|run| run == letter.repeat(1024));
    assert!(has(b"n") && !has(b"o"));
    fails(["--noload", "touch", &image.at("/g")], 2, "--noload");
    assert!(fs::read(image.path()).unwrap() == before);
    let ran = run(["touch", &image.at("/g")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("was not closed cleanly") && ran.stderr.contains("1 transaction"),
        "{}",
        ran.stderr
    );
    assert!(is_new(&image));
    image.assert_clean();
    // The note is printed only once, and not with `--quiet`.
    assert_eq!(run(["touch", &image.at("/g")]).stderr, "");
    let image = with_a_journal_to_replay();
    assert_eq!(run(["-q", "touch", &image.at("/g")]).stderr, "");
    assert!(is_new(&image));
}

#[test]
fn info_describes_the_journal() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext4", "-b", "4096", "-J", "size=8"]);
    let mut found = run(["info".as_ref(), "--json".as_ref(), image.path().as_os_str()]).json();
    let log = found[0]["journal_log"].take();
    assert_eq!(log["bytes"], 8 << 20, "{log}");
    assert_eq!(log["empty"], true, "{log}");
    ok(["--commit", "1", "mkdir", &image.at("/d")]);
    fails(["--commit", "0", "mkdir", &image.at("/e")], 2, "--commit");
    let after = run(["info".as_ref(), "--json".as_ref(), image.path().as_os_str()]).json();
    let (before, after) = (&log["transaction"], &after[0]["journal_log"]["transaction"]);
    assert!(after.as_u64() > before.as_u64(), "{before} {after}");
    let shown = ok(["info", image.str()]);
    assert!(
        shown.contains("clean, 8.0M, transaction ") && shown.contains("journal_checksum_v3"),
        "{shown}"
    );
    assert!(!ok(["info", Image::new("16M", &["-t", "ext2"]).str()]).contains("transaction"));
    // If the journal is corrupt, the rest can still be read.
    image.debugfs_write("sif <8> size 0");
    let shown = ok(["info", image.str()]);
    assert!(
        shown.contains("clean, corrupt") && shown.contains("Format:        ext4"),
        "{shown}"
    );
    fails(["touch", &image.at("/f")], 1, "journal");
}
