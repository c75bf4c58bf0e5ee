//! What `pack` makes around a file system: a partition table, and a hash tree of dm-verity.

use std::fs;
use std::path::Path;

use throughline_testkit::kernel::{Loop, Mount};
use throughline_testkit::{left_out, missing, program};

use crate::common::{assert_clean, fails, ok, run};
use crate::sources::{Place, has};

fn made() -> Place {
    let place = Place::new();
    place.shell(
        "mkdir -p source/etc; echo hello > source/etc/motd
         head -c 3000000 /dev/urandom > source/large",
    );
    place
}

/// What sfdisk says of an image.
#[track_caller]
fn sfdisk(image: &str) -> serde_json::Value {
    let verified = program::command("sfdisk")
        .args(["--verify", image])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(
        verified.status.success() && said.contains("No errors detected"),
        "{said}"
    );
    assert!(
        verified.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&verified.stderr)
    );
    let shown = program::command("sfdisk")
        .args(["-J", image])
        .output()
        .unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown["partitiontable"].clone()
}

#[test]
fn a_disk_image_has_one_partition() {
    let place = made();
    let (source, image) = (place.text("source"), place.text("image"));
    for (options, size) in [
        (&[][..], None),
        (
            &["--size", "20M", "--bootable", "-L", "root"],
            Some(20 << 20),
        ),
        (
            &["--size", "8388608", "-t", "ext2", "-b", "1024"],
            Some(8 << 20),
        ),
        (&["--size", "7654321"], Some(7_654_321)),
        (&["--size", "+4M", "-t", "ext3"], None),
    ] {
        let all = [
            "pack",
            "-F",
            "--json",
            &source,
            "-o",
            &image,
            "--partition",
            "gpt",
        ];
        let packed = run(all.iter().chain(options));
        assert_eq!(packed.code, Some(0), "{options:?}: {}", packed.stderr);
        let packed = packed.json();
        let bytes = fs::metadata(&image).unwrap().len();
        assert_eq!(
            (packed["bytes"].as_u64(), size.unwrap_or(bytes)),
            (Some(bytes), bytes)
        );
        let start = packed["partition"]["start"].as_u64().unwrap();
        assert_eq!(start, 1 << 20);
        ok(["pack", &source, "--check", &image, "--partition", "gpt"]
            .iter()
            .chain(options));
        // The volume alone is sound.
        let volume = packed["partition"]["bytes"].as_u64().unwrap();
        let whole = fs::read(&image).unwrap();
        let alone = place.path("alone");
        fs::write(&alone, &whole[start as usize..][..volume as usize]).unwrap();
        assert_clean(&alone);
        let at = format!("{image}:/etc/motd");
        assert_eq!(ok(["cat", "--offset", "1M", &at]), "hello\n");
        if has(&["sfdisk"]) {
            is_the_table(&sfdisk(&image), &packed, options);
        }
    }
}

/// What sfdisk found is what was told.
#[track_caller]
fn is_the_table(table: &serde_json::Value, packed: &serde_json::Value, options: &[&str]) {
    let partition = &table["partitions"][0];
    assert_eq!(table["label"], "gpt");
    assert_eq!(table["partitions"].as_array().unwrap().len(), 1);
    assert_eq!(partition["start"], 2048);
    assert_eq!(
        partition["size"].as_u64().unwrap() * 512,
        packed["partition"]["bytes"]
    );
    assert_eq!(partition["type"], "0FC63DAF-8483-4772-8E79-3D69D8477DE4");
    let guid = |value: &serde_json::Value| value.as_str().unwrap().to_lowercase();
    assert_eq!(
        guid(&table["id"]),
        packed["partition"]["disk_guid"].as_str().unwrap()
    );
    assert_eq!(
        guid(&partition["uuid"]),
        packed["partition"]["guid"].as_str().unwrap()
    );
    let is_bootable = options.contains(&"--bootable");
    assert_eq!(
        partition["attrs"] == "LegacyBIOSBootable",
        is_bootable,
        "{partition}"
    );
    if is_bootable {
        assert_eq!(partition["name"], "root");
    }
}

/// GUIDs follow from the content, and a check names what differs in the table and in the volume.
#[test]
fn disk_images_are_reproducible_and_checked() {
    let place = made();
    let source = place.text("source");
    let pack = |name: &str| {
        let image = place.text(name);
        ok(["pack", "-q", &source, "-o", &image, "--partition", "gpt"]);
        (fs::read(&image).unwrap(), image)
    };
    let ((first, image), (second, _)) = (pack("one"), pack("two"));
    assert!(first == second);
    let check = ["pack", &source, "--check", &image, "--partition", "gpt"];
    for (at, says) in [
        (512 + 60, "partition table"),
        (first.len() - 100, "backup of the partition table"),
        ((1 << 20) + 1024 + 120, "superblock of group 0"),
    ] {
        let mut changed = first.clone();
        changed[at] ^= 1;
        fs::write(&image, changed).unwrap();
        let found = fails(check, 1, "differs").text();
        assert!(found.contains(says), "{says}: {found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
    fs::write(&image, &first).unwrap();
    place.shell("echo other > source/etc/motd");
    let found = fails(check, 1, "differs").text();
    assert!(
        found.contains("/etc/motd") && found.contains("UUID"),
        "{found}"
    );
    let (other, _) = pack("three");
    let guids = |bytes: &[u8]| bytes[512 + 56..512 + 72].to_vec();
    assert_ne!(guids(&first), guids(&other));
}

#[test]
fn the_kernel_mounts_the_partition() {
    if !throughline_testkit::tier::as_root() {
        missing!("only root mounts with the kernel");
        return;
    }
    let place = made();
    let image = place.text("image");
    ok([
        "pack",
        "-q",
        &place.text("source"),
        "-o",
        &image,
        "--size",
        "+4M",
        "--partition",
        "gpt",
    ]);
    let Some(device) = Loop::new(Path::new(&image), &["-P"]) else {
        return;
    };
    let partition = format!("{}p1", device.node());
    if !Path::new(&partition).exists() {
        left_out!("the kernel makes no devices for partitions of loops here");
        device.detach();
        return;
    }
    let point = place.path("mnt");
    fs::create_dir(&point).unwrap();
    if let Some(mount) = Mount::or_skip(partition.as_ref(), &point, &[]) {
        place.shell(
            "cmp mnt/large source/large; cmp mnt/etc/motd source/etc/motd; echo new > mnt/new",
        );
        mount.unmount();
    }
    device.detach();
}

#[test]
fn a_table_needs_room_and_a_new_image() {
    let place = made();
    let (source, out) = (place.text("source"), place.text("out"));
    let pack = ["pack", &source, "-o", &out, "--partition", "gpt"];
    for (words, code, says) in [
        (&["--size", "1M"][..], 2, "too few for what is around"),
        (&["--size", "2M"], 1, "--size min"),
        (&["--into", "x:/"], 2, "--into"),
    ] {
        fails(pack.iter().chain(words), code, says);
        assert!(!Path::new(&out).exists(), "{words:?}");
    }
    fails(
        ["pack", &source, "-o", &out, "--bootable"],
        2,
        "--partition",
    );
    fails(
        ["pack", &source, "-o", &out, "--partition", "mbr"],
        2,
        "gpt",
    );
}

/// Whether veritysetup accepts the tree, and with it the data.
fn verifies(data: &Path, hashes: &Path, tree: &serde_json::Value) -> bool {
    let offset = tree["hash_offset"].as_u64().unwrap().to_string();
    let mut verify = program::command("veritysetup");
    verify.arg("verify").args([data, hashes]);
    verify.arg(tree["root_hash"].as_str().unwrap());
    verify.args(["--hash-offset", &offset]);
    verify.output().unwrap().status.success()
}

#[test]
fn veritysetup_accepts_the_hash_tree() {
    if !has(&["veritysetup"]) {
        return;
    }
    let place = made();
    let (source, image) = (place.text("source"), place.path("image"));
    let hashes = place.path("hashes");
    let own = format!("--verity={}", hashes.display());
    for options in [
        &["--verity"][..],
        &["--verity", "--size", "40M"],
        &["--verity", "-t", "ext2", "--size", "7777777"],
        &["--verity", "--partition", "gpt", "--size", "+1M"],
        &[&own],
        &[&own, "--partition", "gpt"],
    ] {
        let all = [
            "pack",
            "-F",
            "--json",
            &source,
            "-o",
            image.to_str().unwrap(),
        ];
        let packed = run(all.iter().chain(options));
        assert_eq!(packed.code, Some(0), "{options:?}: {}", packed.stderr);
        let packed = packed.json();
        let tree = &packed["verity"];
        let mut bytes = fs::read(&image).unwrap();
        assert_eq!(packed["bytes"].as_u64(), Some(bytes.len() as u64));
        // The device that the kernel would be given: the partition, or all.
        if let Some(start) = packed["partition"]["start"].as_u64() {
            let len = packed["partition"]["bytes"].as_u64().unwrap() as usize;
            bytes = bytes[start as usize..][..len].to_vec();
            if has(&["sfdisk"]) {
                sfdisk(image.to_str().unwrap());
            }
        }
        let data = place.path("data");
        fs::write(&data, &bytes).unwrap();
        let in_file = options[0] != "--verity";
        let tree_in = if in_file { &hashes } else { &data };
        assert!(verifies(&data, tree_in, tree), "{options:?}");
        // Every block is covered.
        let covered = tree["data_blocks"].as_u64().unwrap() as usize * 4096;
        for at in [0, covered / 2, covered - 1] {
            bytes[at] ^= 1;
            fs::write(&data, &bytes).unwrap();
            assert!(!verifies(&data, tree_in, tree), "{options:?}: {at}");
            bytes[at] ^= 1;
        }
        bytes.truncate(covered);
        fs::write(&data, &bytes).unwrap();
        assert_clean(&data);
    }
}

/// What is written to a volume with a hash tree makes it one that does not mount.
#[test]
fn a_volume_with_a_hash_tree_is_shown_and_not_written() {
    let place = made();
    let (source, image, overlay) = (
        place.text("source"),
        place.text("image"),
        place.text("over"),
    );
    let pack = ["pack", "-F", "--json", &source, "-o", &image, "--verity"];
    // The device of a tree has sectors of 4 KiB.
    let small = [&pack[..], &["-b", "1024"]].concat();
    fails(small, 2, "smaller than those of dm-verity");
    for frame in [&[][..], &["--partition", "gpt"]] {
        let packed = run([&pack[..], frame].concat());
        assert_eq!(packed.code, Some(0), "{}", packed.stderr);
        let made = &packed.json()["verity"];
        let tree = || ok(["info", "--json", &image]);
        let tree =
            || serde_json::from_str::<serde_json::Value>(&tree()).unwrap()[0]["hash_tree"].clone();
        let fits = serde_json::json!({
            "hash_offset": made["hash_offset"], "root_hash": made["root_hash"], "fits": true,
        });
        assert_eq!(tree(), fits);
        let before = fs::read(&image).unwrap();
        let at = |path: &str| format!("{image}:{path}");
        for words in [
            &["rm", &at("/etc/motd")][..],
            &["cp", "Cargo.toml", &at("/x")],
            &["label", &image, "name"],
            &["pack", &source, "--into", &at("/etc")],
            &["resize", &image, "max"],
        ] {
            fails(words, 1, "hash tree of dm-verity");
        }
        ok(["--overlay", &overlay, "rm", &at("/etc/motd")]);
        fs::remove_file(&overlay).unwrap();
        ok(["cat", &at("/etc/motd")]);
        assert!(fs::read(&image).unwrap() == before);
        let mut changed = before;
        let place = changed.len() / 3;
        changed[place] ^= 1;
        fs::write(&image, changed).unwrap();
        assert_eq!(tree()["fits"], false);
        assert_eq!(tree()["root_hash"], made["root_hash"]);
        assert!(ok(["info", &image]).contains("does not fit the volume"));
    }
}

/// The same content gives the same root hash, another one another; a check covers the tree.
#[test]
fn hash_trees_are_reproducible_and_checked() {
    let place = made();
    let (source, image) = (place.text("source"), place.text("image"));
    let pack = ["pack", "-F", "--json", &source, "-o", &image, "--verity"];
    let first = run(pack).json();
    assert_eq!(run(pack).json(), first);
    let check = ["pack", &source, "--check", &image, "--verity"];
    ok(check);
    let mut bytes = fs::read(&image).unwrap();
    let last = bytes.len() - 4000;
    bytes[last] ^= 1;
    fs::write(&image, bytes).unwrap();
    let found = fails(check, 1, "differs").text();
    assert!(found.trim_end().ends_with("hash tree"), "{found}");
    place.shell("echo other > source/etc/motd");
    let other = run(pack).json();
    assert_ne!(other["verity"]["root_hash"], first["verity"]["root_hash"]);
    let shown = run(["pack", "-F", &source, "-o", &image, "--verity"]).text();
    let root = other["verity"]["root_hash"].as_str().unwrap();
    assert!(
        shown.contains(&format!("root hash: {root}, salt: ")),
        "{shown}"
    );
}

#[test]
fn a_hash_tree_goes_behind_the_volume_or_into_a_new_file() {
    let place = made();
    let (source, out) = (place.text("source"), place.text("out"));
    let hashes = place.text("hashes");
    let own = format!("--verity={hashes}");
    fs::write(&hashes, "mine").unwrap();
    fails(["pack", &source, "-o", &out, &own], 1, "-F");
    assert_eq!(fs::read(&hashes).unwrap(), b"mine");
    assert!(!Path::new(&out).exists());
    let same = format!("--verity={out}");
    fails(["pack", &source, "-o", &out, &same], 2, "the image itself");
    place.shell("ln -s . here; tar -cf tar -C source .");
    let same = format!("--verity={}", place.text("here/out"));
    fails(["pack", &source, "-o", &out, &same], 2, "the image itself");
    // A source is not replaced.
    let tar = place.text("tar");
    let before = fs::read(&tar).unwrap();
    for words in [&["-o", &out, &format!("--verity={tar}")][..], &["-o", &tar]] {
        let all = [&["pack", "-F", &tar], words].concat();
        fails(all, 2, "is a source, and also");
    }
    fails(["mkfs", "-F", "-d", &tar, &tar, "8M"], 2, "is a source");
    assert!(fs::read(&tar).unwrap() == before);
    place.shell("rm here tar");
    fails(
        ["pack", &source, "-o", &out, "--verity", "--size", "8k"],
        2,
        "too small",
    );
    fails(
        ["pack", &source, "-o", &out, "--verity", "--size", "1M"],
        1,
        "--size min",
    );
    let none = format!("--verity={}", place.text("none/hashes"));
    fails(["pack", &source, "-o", &out, &none], 1, "No such file");
    assert_eq!(
        fs::read_dir(place.dir.path()).unwrap().count(),
        2,
        "source, hashes"
    );
}

/// A hash tree in a file of its own is checked with the image.
#[test]
fn a_check_compares_the_file_of_the_hash_tree() {
    let place = made();
    let (source, image) = (place.text("source"), place.text("image"));
    let hashes = place.text("hashes");
    let own = format!("--verity={hashes}");
    ok(["pack", "-q", &source, "-o", &image, &own]);
    let check = ["pack", &source, "--check", &image, &own];
    ok(check);
    let first = fs::read(&hashes).unwrap();
    let mut changed = first.clone();
    changed[5000] ^= 1;
    fs::write(&hashes, &changed).unwrap();
    let found = fails(check, 1, "differs").text();
    assert!(
        found.starts_with("1 bytes at 5000: hash tree in"),
        "{found}"
    );
    fs::write(&hashes, &first[..first.len() - 4096]).unwrap();
    assert!(fails(check, 1, "differs").text().contains("instead of"));
    fs::remove_file(&hashes).unwrap();
    fails(check, 2, "No such file");
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 2);
}

/// `mkfs` makes the same table, around a volume without files and around one with.
#[test]
fn mkfs_makes_disk_images() {
    let place = made();
    let (source, image) = (place.text("source"), place.text("image"));
    for options in [&[][..], &["-d", &source]] {
        let words = [
            &[
                "mkfs",
                "--json",
                "-F",
                "--partition",
                "gpt",
                "--bootable",
                "-L",
                "root",
            ],
            options,
            &[&image, "20M"],
        ]
        .concat();
        let made = run(&words).json();
        let start = made["partition"]["start"].as_u64().unwrap() as usize;
        let volume = made["partition"]["bytes"].as_u64().unwrap() as usize;
        let whole = fs::read(&image).unwrap();
        assert_eq!((whole.len(), start), (20 << 20, 1 << 20));
        let alone = place.path("alone");
        fs::write(&alone, &whole[start..][..volume]).unwrap();
        assert_clean(&alone);
        ok(["ls", "--offset", "1M", &format!("{image}:/")]);
        if has(&["sfdisk"]) {
            is_the_table(&sfdisk(&image), &made, &["--bootable"]);
        }
    }
    let none = place.text("none");
    for (words, code, says) in [
        (&[&*image, "20M"][..], 1, "-F"),
        (&["-F", &image, "10M"], 2, "cannot be less"),
        (&[&none], 2, "size"),
        (&[&none, "1M"], 2, "too few"),
        (&["-E", "offset=1048576", &none, "9M"], 2, "offset"),
    ] {
        let all = ["mkfs", "--partition", "gpt"].iter().chain(words);
        fails(all, code, says);
    }
    assert!(!place.path("none").exists());
    fails(["mkfs", "--bootable", &image, "20M"], 2, "--partition");
}

/// A full disk is an error that leaves nothing of a new image, and no damage in one that exists.
#[test]
fn a_full_disk_leaves_nothing() {
    if !throughline_testkit::tier::as_root() || !has(&["unshare", "mount"]) {
        missing!("only root mounts a small file system");
        return;
    }
    let place = made();
    fs::create_dir(place.path("small")).unwrap();
    // In a mount namespace of its own, so that nothing stays mounted.
    let mut unshare = program::command("unshare");
    unshare.args(["-m", "bash", "-c"]).arg(
        "PATH=$PATH:/usr/sbin:/sbin; mount -t tmpfs -o size=2M none \"$1/small\" && cd \"$1/small\" || exit 99
         fails() { \"$0\" pack -q ../source \"$@\" && exit 98; [ $? = 1 ] || exit 97; }
         fails -o image --partition gpt --verity
         fails -o image --verity=hashes
         fails -o ../beside --verity=hashes --size 600M
         [ \"$(ls -A)\" = '' ] || exit 96
         \"$0\" mkfs -q image 32M || exit 95
         fails --into image:/
         \"$0\" replay -q image; e2fsck -fn image >&2 || exit 94",
    );
    unshare
        .arg(env!("CARGO_BIN_EXE_throughline"))
        .arg(place.dir.path());
    let ran = unshare.output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(99) {
        missing!("no tmpfs here: {errors}");
        return;
    }
    assert_eq!(ran.status.code(), Some(0), "{errors}");
    assert!(
        errors.contains("No space left") || errors.contains("full"),
        "{errors}"
    );
    // Files without names are called by the names that they are to get.
    assert!(!errors.contains("/proc/self"), "{errors}");
}
