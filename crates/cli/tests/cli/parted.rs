//! Tables of partitions that `parted` makes, beside what it prints of them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use throughline_testkit::program::{self, has};

use crate::common::{Image, ok, run, tools_are_missing};

/// Of what it prints: `NUMBER:BEGINB:ENDB:LENB:FILE SYSTEM:NAME:FLAGS;`.
#[derive(Debug)]
struct Printed {
    number: u64,
    start_bytes: u64,
    len_bytes: u64,
    file_system: String,
    name: String,
}

fn parted(disk: &Path, commands: &[&str]) -> String {
    let mut parted = program::command("parted");
    parted.args(["-s", "-m"]).arg(disk).args(commands);
    let ran = parted.output().unwrap();
    assert!(ran.status.success(), "{commands:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// The partitions, and the kind of the table.
fn printed(disk: &Path) -> (Vec<Printed>, String) {
    let text = parted(disk, &["unit", "B", "print"]);
    let mut lines = text.lines().skip(1);
    let head: Vec<&str> = lines.next().unwrap().split(':').collect();
    let partitions = lines.map(|line| {
        let fields: Vec<&str> = line.trim_end_matches(';').split(':').collect();
        let bytes = |at: usize| fields[at].trim_end_matches('B').parse::<u64>().unwrap();
        let (start_bytes, len_bytes) = (bytes(1), bytes(3));
        assert_eq!(bytes(2) + 1, start_bytes + len_bytes, "{line}");
        Printed {
            number: fields[0].parse().unwrap(),
            start_bytes,
            len_bytes,
            file_system: fields[4].to_owned(),
            name: fields[5].to_owned(),
        }
    });
    (partitions.collect(), head[5].to_owned())
}

/// The words of a command of several.
fn words(commands: &str) -> Vec<&str> {
    commands.split_whitespace().collect()
}

const GPT: &str = "mklabel gpt mkpart boot fat32 1MiB 5MiB mkpart system ext4 8MiB 24MiB \
    mkpart data ext4 32MiB 56MiB name 2 root-b";
/// With three logical partitions, one of which is before the others and was made after them.
const MSDOS: &str = "mklabel msdos mkpart primary fat32 1MiB 5MiB mkpart extended 5MiB 63MiB \
    mkpart logical ext4 32MiB 56MiB mkpart logical ext4 8MiB 24MiB mkpart logical 57MiB 62MiB";
/// Partitions that begin and end at odd sectors, out of order.
const ODD: &str = "mklabel gpt mkpart one ext4 65537s 114689s mkpart two ext4 16387s 49155s \
    mkpart three 2047s 2047s";

/// The volumes are put where `parted` says; then both see the same.
#[test]
fn tables_of_parted_are_read_as_it_prints_them() {
    if tools_are_missing() {
        return;
    }
    if !has(&["parted"]) {
        throughline_testkit::missing!("parted is not installed");
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "inner"]);
    ok(["mkdir", &image.at("/here")]);
    let volume = fs::read(image.path()).unwrap();
    let path = image.sibling("disk");
    for script in [GPT, MSDOS, ODD] {
        let file = File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        parted(&path, &words(script));
        let (before, kind) = printed(&path);
        let large = before.iter().filter(|one| one.len_bytes >= 16 << 20);
        // The extended one holds others.
        let large: Vec<&Printed> = large.filter(|one| one.len_bytes < 32 << 20).collect();
        assert_eq!(large.len(), 2, "{before:?}");
        for one in &large {
            file.write_all_at(&volume, one.start_bytes).unwrap();
        }
        let (theirs, _) = printed(&path);
        compare(&path, &theirs, &kind);
        let disk = path.display();
        for one in &large {
            let place = format!("{disk}@{}:/", one.number);
            assert!(ok(["ls", &place]).contains("here"), "{place}");
            if !one.name.is_empty() {
                let place = format!("{disk}@{}:/", one.name);
                assert!(ok(["ls", &place]).contains("here"), "{place}");
            }
        }
        // Written by us, the table is as it was, and so are the places.
        ok(["mkdir", &format!("{disk}@{}:/new", large[0].number)]);
        let (after, _) = printed(&path);
        assert_eq!(format!("{after:?}"), format!("{theirs:?}"));
        let start = large[0].start_bytes as usize;
        let bytes = fs::read(&path).unwrap();
        fs::write(image.path(), &bytes[start..start + (16 << 20)]).unwrap();
        image.assert_clean();
        fs::write(image.path(), &volume).unwrap();
    }
}

fn compare(path: &Path, theirs: &[Printed], kind: &str) {
    let ours = &run(["info", "--json", path.to_str().unwrap()]).json()[0];
    let expected = if kind == "gpt" { "gpt" } else { "mbr" };
    let table = ours["partition_table"].as_str().unwrap();
    assert_eq!(table.to_lowercase(), expected);
    let ours = ours["partitions"].as_array().unwrap();
    // We show those that can hold something: an extended one has the number of a primary one, and holds the
    // logical ones.
    let is_extended = |one: &&Printed| {
        let inside = theirs.iter().any(|other| {
            other.number > 4 && one.number <= 4 && other.start_bytes > one.start_bytes
        });
        kind == "msdos" && inside && one.len_bytes > 32 << 20
    };
    let shown = theirs.iter().filter(|one| !is_extended(one));
    let shown: Vec<&Printed> = shown.collect();
    assert_eq!(ours.len(), shown.len(), "{ours:?} {shown:?}");
    for theirs in shown {
        let mut same = ours.iter().filter(|one| one["number"] == theirs.number);
        let ours = same
            .next()
            .unwrap_or_else(|| panic!("{theirs:?}: {ours:?}"));
        assert_eq!(ours["start_bytes"], theirs.start_bytes, "{theirs:?}");
        assert_eq!(ours["len_bytes"], theirs.len_bytes, "{theirs:?}");
        let name = ours["name"].as_str().unwrap_or_default();
        assert_eq!(name, theirs.name, "{theirs:?}");
        let is_ext = theirs.file_system.starts_with("ext");
        assert_eq!(ours["volume"].is_object(), is_ext, "{theirs:?}: {ours}");
    }
}
