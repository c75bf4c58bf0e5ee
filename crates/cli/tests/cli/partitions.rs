//! Volumes in partitions of disks: found, named, and never mistaken for another. Judge of the places: sfdisk,
//! and the kernel's loop devices as root.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use throughline_testkit::program::{self, has};

use crate::common::{Image, fails, ok, run, tools_are_missing};

const SECTOR: u64 = 512;

/// A disk whose partitions begin at `volumes`, with these images in them.
fn disk(path: &Path, script: &str, volumes: &[(u64, &Image)]) -> bool {
    let file = fs::File::create(path).unwrap();
    file.set_len(64 << 20).unwrap();
    let script_file = path.with_extension("script");
    fs::write(&script_file, script).unwrap();
    let made = program::command("sfdisk")
        .arg("-q")
        .arg(path)
        .stdin(Stdio::from(fs::File::open(&script_file).unwrap()))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    for (sector, image) in volumes {
        let bytes = fs::read(image.path()).unwrap();
        file.write_all_at(&bytes, sector * SECTOR).unwrap();
    }
    true
}

fn skipped() -> bool {
    if tools_are_missing() {
        return true;
    }
    if !has(&["sfdisk"]) {
        throughline_testkit::missing!("sfdisk is not installed");
        return true;
    }
    false
}

const GPT: &str = "label: gpt\n\
    start=2048,size=8192,name=boot\n\
    start=16384,size=32768,name=system,uuid=11111111-2222-3333-4444-555555555555\n\
    start=65536,size=49152,name=data\n";
/// With two logical partitions.
const MBR: &str = "label: dos\nlabel-id: 0xcafe1234\n\
    start=2048,size=8192,type=c\n\
    start=10240,size=120000,type=5\n\
    start=16384,size=32768,type=83\n\
    start=65536,size=49152,type=83\n";

fn place(disk: &Path, partition: &str, path: &str) -> String {
    format!("{}{partition}:{path}", disk.display())
}

#[test]
fn the_only_volume_needs_no_name() {
    if skipped() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "rootfs"]);
    let path = image.sibling("disk");
    for (script, number) in [(GPT, "2"), (MBR, "5")] {
        disk(&path, script, &[(16384, &image)]);
        let before = fs::read(&path).unwrap();
        let here = |at: &str| place(&path, "", at);
        let name = path.to_str().unwrap();
        ok(["mkdir", "-p", &here("/new")]);
        let source = image.sibling("source");
        fs::write(&source, "content").unwrap();
        ok(["cp", source.to_str().unwrap(), &here("/new/file")]);
        assert_eq!(ok(["cat", &here("/new/file")]), "content");
        let with_number = path.with_file_name(format!("disk@{number}"));
        assert_eq!(
            ok(["cat", &place(&with_number, "", "/new/file")]),
            "content"
        );
        assert_eq!(ok(["label", name]).trim(), "rootfs");
        assert!(ok(["df", name]).contains("disk"));
        assert!(ok(["replay", name]).contains("disk"));
        assert!(ok(["tar", &here("/")]).contains("content"));
        let info = ok(["info", name]);
        assert!(
            info.contains("rootfs") && info.contains("Partitions:"),
            "{info}"
        );
        let value = &run(["info", "--json", name]).json()[0];
        assert_eq!(value["partitions"].as_array().unwrap().len(), 3);
        assert_eq!(value["label"], "rootfs");
        // Everything outside of the partition is as it was.
        let after = fs::read(&path).unwrap();
        let (start, end) = (16384 * 512, (16384 + 32768) * 512);
        assert!(before[..start] == after[..start] && before[end..] == after[end..]);
        fs::write(image.path(), &after[start..start + (16 << 20)]).unwrap();
        image.assert_clean();
    }
}

#[test]
fn a_volume_grows_and_shrinks_within_its_partition() {
    if skipped() {
        return;
    }
    let image = Image::new("12M", &["-t", "ext4", "-J", "size=1"]);
    ok(["mkdir", &image.at("/kept")]);
    let path = image.sibling("disk");
    for script in [GPT, MBR] {
        disk(&path, script, &[(16384, &image)]);
        // What is behind the volume in its partition, and around the partition.
        let file = fs::File::options().write(true).open(&path).unwrap();
        let (start, end) = (16384 * 512, (16384 + 32768) * 512);
        file.write_all_at(&vec![0x5a; 4 << 20], start as u64 + (12 << 20))
            .unwrap();
        file.write_all_at(&[0x77; 4096], end as u64).unwrap();
        let before = fs::read(&path).unwrap();
        let name = path.to_str().unwrap();
        let named = format!("{name}@{}", if script == GPT { 2 } else { 5 });
        fails(["resize", name, "17M"], 1, "do not fit");
        for (name, size) in [
            (name, "max"),
            (&named, "min"),
            (&named, "14M"),
            (name, "max"),
        ] {
            ok(["resize", name, size]);
            let after = fs::read(&path).unwrap();
            assert!(before[..start] == after[..start] && before[end..] == after[end..]);
            fs::write(image.path(), &after[start..end]).unwrap();
            image.assert_clean();
            assert!(ok(["ls", &place(&path, "", "/")]).contains("kept"));
        }
        let bytes = run(["info", "--json", name]).json()[0]["size_bytes"].clone();
        assert_eq!(bytes, 16 << 20);
        let small = fs::File::options().write(true).open(image.path()).unwrap();
        small.set_len(12 << 20).unwrap();
        ok(["mkfs", "-q", "-F", "-J", "size=1", image.str(), "12M"]);
        ok(["mkdir", &image.at("/kept")]);
    }
}

#[test]
fn several_volumes_are_named() {
    if skipped() {
        return;
    }
    let first = Image::new("16M", &["-t", "ext4", "-L", "one"]);
    let second = Image::new("24M", &["-t", "ext2", "-L", "two"]);
    ok(["touch", &first.at("/in-one")]);
    ok(["touch", &second.at("/in-two")]);
    let path = first.sibling("disk");
    for (script, numbers, names) in [
        (GPT, ["2", "3"], ["system", "data"]),
        (MBR, ["5", "6"], ["cafe1234-05", "CAFE1234-06"]),
    ] {
        disk(&path, script, &[(16384, &first), (65536, &second)]);
        let error = fails(
            ["ls", &place(&path, "", "/")],
            1,
            "several of its partitions",
        );
        assert!(error.stderr.contains("\"two\""), "{}", error.stderr);
        let uuid = |image: &Image| {
            let info = run(["info", "--json", image.str()]).json();
            info[0]["uuid"].as_str().unwrap().to_owned()
        };
        for (at, image, label) in [(0, &first, "one"), (1, &second, "two")] {
            let uuid = uuid(image);
            let uuid_alone = format!("uuid={uuid}");
            let label_alone = format!("label={label}");
            for name in [
                numbers[at],
                names[at],
                label,
                &uuid,
                &uuid_alone,
                &label_alone,
            ] {
                let listed = ok(["ls", &place(&path, &format!("@{name}"), "/")]);
                assert!(listed.contains(&format!("in-{label}")), "{name}: {listed}");
            }
        }
        // From one into the other, in one command.
        let from = place(&path, &format!("@{}", numbers[0]), "/in-one");
        ok(["cp", &from, &place(&path, "@two", "/copied")]);
        assert!(ok(["ls", &place(&path, "@two", "/")]).contains("copied"));
        // The table is what there is to show of a disk with several.
        let info = ok(["info", path.to_str().unwrap()]);
        assert!(info.contains("two") && !info.contains("Format:"), "{info}");
        for wrong in ["@4", "@none", "@label=system2"] {
            fails(["ls", &place(&path, wrong, "/")], 1, "it has no partition");
        }
        let none = fails(["ls", &place(&path, "@1", "/")], 1, "no ext file system");
        assert!(!none.stderr.contains("e2fsck"), "{}", none.stderr);
        fails(
            ["ls", "--offset=1M", &place(&path, "@two", "/")],
            1,
            "exclude each other",
        );
    }
    fails(
        ["ls", &place(&first.path(), "@1", "/")],
        1,
        "no table of partitions",
    );
}

#[test]
fn a_file_system_is_made_in_a_partition() {
    if skipped() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let path = image.sibling("disk");
    for (script, number) in [(GPT, "3"), (MBR, "6")] {
        disk(&path, script, &[(16384, &image)]);
        let before = fs::read(&path).unwrap();
        let name = format!("{}@{number}", path.display());
        fails(["mkfs", "-q", &name, "25M"], 2, "do not fit the partition");
        fails(["mkfs", "-q", "-d", "/etc/hostname", &name], 1, "excludes");
        assert!(fs::read(&path).unwrap() == before);
        ok(["mkfs", "-q", "-L", "made", &name]);
        fails(["mkfs", "-q", &name], 1, "it holds an ext volume");
        let after = fs::read(&path).unwrap();
        let (start, end) = (65536 * 512, (65536 + 49152) * 512);
        assert!(before[..start] == after[..start] && before[end..] == after[end..]);
        fs::write(image.path(), &after[start..end]).unwrap();
        image.assert_clean();
        let info = &run(["info", "--json", &name]).json()[0];
        assert_eq!(info["size_bytes"], 24 << 20);
        // A name for which the path is forgotten.
        let source = image.sibling("source");
        fs::write(&source, "x").unwrap();
        fails(
            ["cp", source.to_str().unwrap(), &name],
            2,
            ":/' for its root",
        );
        assert!(!Path::new(&name).exists());
        let empty = Image::new("16M", &["-t", "ext4"]);
        fs::copy(empty.path(), image.path()).unwrap();
    }
}

/// Nothing may be advised or done that is about the whole disk, or that makes a file of that name.
#[test]
fn a_partition_is_not_taken_for_something_else() {
    if skipped() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "one"]);
    let path = image.sibling("disk");
    disk(&path, GPT, &[(16384, &image)]);
    let before = fs::read(&path).unwrap();
    let name = |partition: &str| format!("{}@{partition}", path.display());
    let source = image.sibling("source");
    fs::write(&source, "x").unwrap();
    let source = source.to_str().unwrap();
    fails(
        ["pack", "-o", &name("3"), source],
        1,
        "it names a partition",
    );
    fails(["cp", source, &name("3")], 2, "for its root");
    // The superblock of the second partition is where a copy for the whole disk might be.
    for command in ["info", "replay", "df"] {
        let ran = run([command, &name("1")]);
        assert_ne!(ran.code, Some(0));
        assert!(!ran.stderr.contains("e2fsck -b"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("'e2fsck -f IMAGE'"), "{}", ran.stderr);
    }
    // A volume that is damaged: the advice is for its place.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 8], 16384 * SECTOR + 1024 + 0x20)
        .unwrap();
    let ran = fails(["ls", &place(&path, "@2", "/")], 1, "?offset=8388608");
    assert!(!ran.stderr.contains("IMAGE"), "{}", ran.stderr);
    // It is clear what is meant, and it does not open.
    fails(["info", path.to_str().unwrap()], 1, "?offset=8388608");
    fs::write(&path, &before).unwrap();
    // A file with such a name can be made if the other one is no disk.
    let other = format!("{source}@2024.img");
    ok(["mkfs", "-q", &other, "16M"]);
    // One partition became too small for what it holds: a new file system may be made there.
    let small = GPT.replace("size=32768", "size=20000");
    disk(&path, &small, &[(16384, &image)]);
    let why = "the partition was made smaller";
    fails(["ls", &place(&path, "@2", "/")], 1, why);
    assert!(ok(["info", path.to_str().unwrap()]).contains(why));
    ok(["mkfs", "-q", "-F", &name("2")]);
    ok(["ls", &place(&path, "@2", "/")]);
}

/// A whole-disk volume that was there before the table.
#[test]
fn what_is_left_over_is_not_written_to() {
    if skipped() {
        return;
    }
    let old = Image::new("64M", &["-t", "ext2", "-L", "OLD"]);
    let image = Image::new("16M", &["-t", "ext4", "-L", "one"]);
    let path = old.sibling("disk");
    disk(&path, MBR, &[(16384, &image)]);
    let superblock = fs::read(old.path()).unwrap()[1024..2048].to_vec();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&superblock, 1024).unwrap();
    let ran = fails(
        ["ls", &place(&path, "", "/")],
        1,
        "left over from earlier use",
    );
    assert!(ran.stderr.contains("IMAGE@0"), "{}", ran.stderr);
    assert!(ok(["ls", &place(&path, "@5", "/")]).contains("lost+found"));
    assert!(ok(["info", path.to_str().unwrap()]).contains("one"));
    // Without volumes in partitions, it is the volume.
    let file = fs::File::options().write(true).open(old.path()).unwrap();
    disk(&path, "label: dos\nstart=16384,size=32768,type=83\n", &[]);
    let table = fs::read(&path).unwrap()[..512].to_vec();
    file.write_all_at(&table, 0).unwrap();
    ok(["ls", &place(&old.path(), "", "/")]);
    ok(["ls", &place(&old.path(), "@0", "/")]);
    // The whole overlaps what is in the partition: one command does not open both.
    let bytes = fs::read(image.path()).unwrap();
    file.write_all_at(&bytes, 16384 * SECTOR).unwrap();
    let [part, whole] = ["@1", "@0"].map(|name| place(&old.path(), name, "/lost+found"));
    for places in [[&part, &whole], [&whole, &part]] {
        let ran = fails(
            ["touch", "-c", places[0], places[1]],
            1,
            "is in use by this process",
        );
        assert!(
            ran.stderr
                .contains(places[1].trim_end_matches(":/lost+found"))
        );
    }
}

/// Also with a name, and by a mount option.
#[test]
fn a_partition_is_mounted() {
    if skipped() || crate::mount::skipped() {
        return;
    }
    let first = Image::new("16M", &["-t", "ext4", "-L", "one"]);
    let second = Image::new("24M", &["-t", "ext4", "-L", "two"]);
    let path = first.sibling("disk");
    disk(&path, GPT, &[(16384, &first), (65536, &second)]);
    let point = first.sibling("point");
    fs::create_dir(&point).unwrap();
    let (disk, point) = (path.to_str().unwrap(), point.to_str().unwrap());
    for (name, options, file) in [
        (format!("{disk}@one"), "rw", "first"),
        (disk.to_owned(), "partition=3", "second"),
    ] {
        ok(["mount", &name, point, "-o", options]);
        let written = fs::write(PathBuf::from(point).join(file), file);
        let status = run(["status", "--json", point]).json();
        let text = ok(["status", point]);
        ok(["umount", point]);
        written.unwrap();
        assert!(status["partition"].is_string(), "{status}");
        assert!(text.contains("/disk@"), "{text}");
    }
    assert_eq!(ok(["cat", &place(&path, "@2", "/first")]), "first");
    assert_eq!(ok(["cat", &place(&path, "@3", "/second")]), "second");
    let run = run(["mount", disk, point]);
    assert_ne!(run.code, Some(0));
    assert!(
        run.stderr.contains("several of its partitions"),
        "{}",
        run.stderr
    );
}

/// What the kernel finds, and where.
#[test]
fn partitions_are_where_sfdisk_and_the_kernel_see_them() {
    if skipped() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let path = image.sibling("disk");
    for script in [GPT, MBR] {
        disk(&path, script, &[(16384, &image)]);
        let listed = program::command("sfdisk")
            .arg("-J")
            .arg(&path)
            .output()
            .unwrap();
        let theirs: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let theirs = theirs["partitiontable"]["partitions"]
            .as_array()
            .unwrap()
            .clone();
        let ours = run(["info", "--json", path.to_str().unwrap()]).json()[0]["partitions"].clone();
        let ours: Vec<_> = ours.as_array().unwrap().iter().collect();
        let mut theirs: Vec<_> = theirs
            .iter()
            .filter(|one| one["type"] != "5")
            .map(|one| {
                let sectors = |name: &str| one[name].as_u64().unwrap() * SECTOR;
                (
                    sectors("start"),
                    sectors("size"),
                    one["uuid"].as_str().map(str::to_lowercase),
                )
            })
            .collect();
        theirs.sort();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours["start_bytes"], theirs.0);
            assert_eq!(ours["len_bytes"], theirs.1);
            if let Some(uuid) = &theirs.2 {
                assert_eq!(ours["uuid"].as_str().unwrap(), uuid);
            }
        }
        assert_eq!(ours.len(), theirs.len());
    }
}
