//! Volumes made here and by mke2fs, from the same options, time, UUID and hash seed, have the same bytes. The
//! command line's tests have the long list of options; here are the library, devices and what is refused.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice};
use throughline_extfmt::Superblock;
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use throughline_make::{Config, Error, Made, MkfsOptions, VolumeSize};
use throughline_testkit::{e2fs, kernel, program};

const UUID: &str = "6b33f586-a183-4383-921d-30da3fef2e5c";
const SEED: &str = "11111111-2222-3333-4444-555555555555";
const TIME_S: u64 = 1_700_000_000;

fn options(size_bytes: u64) -> MkfsOptions {
    let mut options = MkfsOptions::new();
    options
        .config(Config::built_in())
        .uuid(uuid::Uuid::try_parse(UUID).unwrap().into_bytes())
        .hash_seed(uuid::Uuid::try_parse(SEED).unwrap().into_bytes())
        .time(SystemTime::UNIX_EPOCH + Duration::from_secs(TIME_S))
        .size(VolumeSize::Bytes(size_bytes));
    options
}

/// Makes the same with mke2fs.
fn theirs(image: &Path, size_bytes: u64, words: &[&str]) {
    let seed = format!("hash_seed={SEED}");
    let mut make = e2fs::tool("mke2fs");
    make.env("E2FSPROGS_FAKE_TIME", TIME_S.to_string())
        .args(["-q", "-F", "-U", UUID, "-E", &seed])
        .args(words)
        .arg(image)
        .arg(format!("{}k", size_bytes >> 10));
    program::run(&mut make, e2fs::LIMIT).good("mke2fs");
}

/// The bytes of an image, without those that may differ: `s_kbytes_written` and `s_checksum`.
fn masked(image: &Path, block_bytes: usize) -> Vec<u8> {
    let mut bytes = fs::read(image).unwrap();
    for at in (1024..bytes.len())
        .step_by(block_bytes)
        .chain((0..bytes.len()).step_by(block_bytes))
    {
        let is_super = bytes.get(at + 0x38..at + 0x3a) == Some(&[0x53, 0xef]);
        if is_super {
            bytes[at + 0x178..at + 0x180].fill(0);
            bytes[at + 0x3fc..at + 0x400].fill(0);
        }
    }
    bytes
}

fn assert_same(ours: &Path, theirs: &Path, block_bytes: usize, what: &str) {
    let (a, b) = (masked(ours, block_bytes), masked(theirs, block_bytes));
    assert_eq!(a.len(), b.len(), "{what}");
    let different = a.iter().zip(&b).position(|(a, b)| a != b);
    let place = different.map(|at| (at / block_bytes, at % block_bytes));
    assert_eq!(place, None, "{what}: first difference at block, byte");
}

#[test]
fn the_three_types_have_the_bytes_of_mke2fs() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    for fs_type in ["ext2", "ext3", "ext4"] {
        for mib in [1, 8, 100, if fs_type == "ext4" { 520 } else { 40 }] {
            let what = format!("{fs_type} of {mib} MiB");
            let size = mib << 20;
            options(size)
                .fs_type(fs_type)
                .overwrite(true)
                .make(&a)
                .unwrap();
            theirs(&b, size, &["-t", fs_type]);
            assert_same(&a, &b, if mib < 512 { 1024 } else { 4096 }, &what);
            e2fs::assert_clean_after(&a, &what);
            for image in [&a, &b] {
                fs::remove_file(image).unwrap();
            }
        }
    }
}

/// Old content of a device is neither shown nor mistaken for metadata.
#[test]
fn a_device_with_old_content_is_clean_after() {
    if !e2fs::is_there() {
        return;
    }
    const BYTES: u64 = 32 << 20;
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (words, fs_type, discard) in [
        ("lazy_itable_init=0", "ext4", true),
        ("lazy_itable_init=0", "ext4", false),
        ("lazy_itable_init=1", "ext4", false),
        ("", "ext2", false),
        ("", "ext3", false),
    ] {
        let device = Arc::new(MemoryDevice::new(BYTES));
        let disk = Disk::new(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
        disk.write_at(0, &vec![0xff; BYTES as usize], false)
            .unwrap();
        let mut options = options(BYTES);
        options.fs_type(fs_type).discard(discard);
        options.extended(words).unwrap();
        let refused = options.make_on(Arc::clone(&device) as Arc<dyn BlockDevice>);
        assert!(matches!(refused, Err(Error::Occupied(_))), "{refused:?}");
        options.overwrite(true).make_on(device).unwrap();
        let mut bytes = vec![0; BYTES as usize];
        disk.read_at(0, &mut bytes).unwrap();
        fs::write(&image, &bytes).unwrap();
        e2fs::assert_clean_after(&image, &format!("{fs_type} {words} discard {discard}"));
    }
}

#[test]
fn sixteen_tebibytes_on_a_sparse_device() {
    const BYTES: u64 = 16 << 40;
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(BYTES));
    let mut options = options(BYTES);
    let made = options
        .overwrite(true)
        .discard(false)
        .make_on(Arc::clone(&device))
        .unwrap();
    assert_eq!((made.blocks, made.groups), (1 << 32, 1 << 17));
    assert!(!made.features.contains(&"resize_inode".to_owned()));
    let disk = Disk::new(device).unwrap();
    let mut bytes = vec![0; 4096];
    disk.read_at(0, &mut bytes).unwrap();
    let sb = throughline_extfmt::Superblock::read(&bytes[1024..]).unwrap();
    assert_eq!(sb.validate().unwrap().blocks, made.blocks);
    assert_eq!(sb.free_blocks_count(), made.free_blocks);
}

#[test]
fn a_part_of_a_file_leaves_the_rest_alone() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    // Not aligned to the blocks of the host.
    let (from, bytes, behind) = (512 * 3, 4 << 20, 5000);
    fs::write(&image, vec![7; from + bytes + behind]).unwrap();
    let mut options = options(bytes as u64);
    options
        .extended(&format!("offset={from}"))
        .unwrap()
        .overwrite(true);
    options.make(&image).unwrap();
    let all = fs::read(&image).unwrap();
    assert_eq!(all.len(), from + bytes + behind);
    assert!(all[..from].iter().all(|byte| *byte == 7));
    assert!(all[from + bytes..].iter().all(|byte| *byte == 7));
    let inner = folder.path().join("inner");
    fs::write(&inner, &all[from..from + bytes]).unwrap();
    e2fs::assert_clean(&inner);
}

/// What is refused leaves a file as it is, its length too.
#[test]
fn a_refused_file_keeps_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes");
    fs::write(&file, "a line\n").unwrap();
    let refused = options(8 << 20).make(&file);
    assert!(matches!(refused, Err(Error::Occupied(_))), "{refused:?}");
    let wrong = options(8 << 20)
        .overwrite(true)
        .label([b'x'; 17])
        .make(&file);
    assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
    assert_eq!(fs::read(&file).unwrap(), b"a line\n");
    options(8 << 20).overwrite(true).make(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 8 << 20);
}

#[test]
fn only_superblocks_leave_files_and_tables_alone() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut options = options(16 << 20);
    options.make(&image).unwrap();
    e2fs::debugfs_write(&image, "mkdir kept\n");
    let before = fs::read(&image).unwrap();
    options.only_supers(true).make(&image).unwrap();
    let after = fs::read(&image).unwrap();
    let changed: Vec<_> = (0..before.len() / 1024)
        .filter(|block| before[block * 1024..][..1024] != after[block * 1024..][..1024])
        .collect();
    // Superblocks and descriptors of two groups.
    assert!(
        changed
            .iter()
            .all(|block| [1, 2, 8193, 8194].contains(block)),
        "{changed:?}"
    );
    e2fs::repair(&image);
    assert!(e2fs::debugfs(&image, "ls -l /").contains("kept"));
}

/// Everything that may depend on the machine is given: the bytes are the same.
#[test]
fn the_same_twice() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = ["a", "b"].map(|name| folder.path().join(name)).to_vec();
    let made: Vec<Made> = paths
        .iter()
        .map(|path| {
            let mut options = options(8 << 20);
            options.features("orphan_file,mmp").unwrap();
            options.make(path).unwrap()
        })
        .collect();
    assert_eq!(fs::read(&paths[0]).unwrap(), fs::read(&paths[1]).unwrap());
    assert_eq!(made[0].uuid, made[1].uuid);
}

#[test]
fn what_is_refused_says_what_is_allowed_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    type Change = fn(&mut MkfsOptions);
    let cases: &[(Change, &str)] = &[
        (|o| _ = o.block_bytes(512), "1024 to 65536"),
        (|o| _ = o.block_bytes(3000), "1024 to 65536"),
        (|o| _ = o.inode_bytes(100), "128 to the block size"),
        (|o| _ = o.inode_bytes(2048), "128 to the block size"),
        (|o| _ = o.reserved_percent(51.0), "0 to 50"),
        (|o| _ = o.reserved_percent(f64::NAN), "0 to 50"),
        (|o| _ = o.label("12345678901234567"), "at most 16"),
        (|o| _ = o.inodes(1 << 40), "from 1"),
        (|o| _ = o.bytes_per_inode(512), "1024 to"),
        (|o| _ = o.blocks_per_group(255), "multiple of 8"),
        (|o| _ = o.blocks_per_group(8200), "256 to 8192"),
        (|o| _ = o.groups_per_flex(3), "power of two"),
        (|o| _ = o.revision(2), "0 or 1"),
        (|o| _ = o.fs_type("ext5"), "ext3, ext4"),
        (|o| _ = o.usage("bogus"), "small"),
        (|o| _ = o.size(VolumeSize::Bytes(8 << 10)), "too small"),
        (|o| _ = o.size(VolumeSize::Bytes(u64::MAX)), "2^63"),
        (|o| _ = o.size(VolumeSize::Blocks(u64::MAX)), "2^63"),
        (
            |o| _ = o.journal_options("size=33").unwrap(),
            "from 1 to 32 MiB",
        ),
        (
            |o| _ = o.extended("resize=100").unwrap(),
            "more than the 65536",
        ),
        (|o| _ = o.features("meta_bg").unwrap(), "^resize_inode"),
        (|o| _ = o.features("^extent").unwrap(), "^64bit"),
        (
            |o| _ = o.features("^sparse_super").unwrap(),
            "^resize_inode",
        ),
        (
            |o| _ = o.features("orphan_file,^has_journal").unwrap(),
            "has_journal",
        ),
        (
            |o| _ = o.features("metadata_csum_seed,^metadata_csum").unwrap(),
            "metadata_csum",
        ),
        (
            |o| _ = o.features("inline_data").unwrap().inode_bytes(128),
            "256 bytes",
        ),
    ];
    for (at, (change, said)) in cases.iter().enumerate() {
        let mut options = options(64 << 20);
        change(&mut options);
        let refused = options.make(&image).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, Error::Invalid(_)),
            "case {at}: {refused:?}"
        );
        assert!(refused.to_string().contains(said), "case {at}: {refused}");
        assert!(!image.exists(), "case {at}");
    }
    let mut options = MkfsOptions::new();
    for (list, said) in [
        ("bogus", "has_journal"),
        ("bigalloc", "bigalloc is not written"),
    ] {
        let refused = options.features(list).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(said), "{list}: {refused}");
    }
    for words in [
        "bogus",
        "stride=x",
        "stride=0",
        "root_owner=a",
        "hash_seed=1",
        "encoding=latin1",
        "encoding_flags=bogus",
        "quotatype=usr",
    ] {
        assert!(options.extended(words).is_err(), "{words}");
    }
    for words in ["bogus", "size=0", "device=", "device", "location=x"] {
        assert!(options.journal_options(words).is_err(), "{words}");
    }
    assert!(
        MkfsOptions::new()
            .make(&image)
            .unwrap_err()
            .to_string()
            .contains("no size")
    );
}

/// Every size from nothing to a little: it is made, or refused with a reason.
#[test]
fn tiny_sizes() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut made = 0;
    for kib in (0..80).step_by(3).chain((80..9000).step_by(431)) {
        for fs_type in ["ext2", "ext4"] {
            let outcome = options(kib << 10)
                .fs_type(fs_type)
                .overwrite(true)
                .make(&image);
            match outcome {
                Ok(_) => {
                    made += 1;
                    e2fs::assert_clean_after(&image, &format!("{fs_type} of {kib} KiB"));
                    fs::remove_file(&image).unwrap();
                }
                Err(Error::Invalid(_)) => assert!(!image.exists()),
                Err(other) => panic!("{fs_type} of {kib} KiB: {other}"),
            }
        }
    }
    assert!(made > 60, "{made}");
}

#[test]
fn journal_devices_have_the_bytes_of_mke2fs() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let sizes = [(1, 1024), (16, 1024), (16, 4096), (300, 2048), (128, 65536)];
    let both = sizes.map(|size| [("ext2", size), ("ext4", size)]);
    for (fs_type, (mib, block_bytes)) in both.into_iter().flatten() {
        let block = block_bytes.to_string();
        let words = [
            "-t",
            fs_type,
            "-O",
            "journal_dev",
            "-b",
            &block,
            "-L",
            "log",
        ];
        // What was there must not be taken for a log.
        fs::write(&a, vec![0xC0; mib << 20]).unwrap();
        let mut options = options((mib as u64) << 20);
        options
            .fs_type(fs_type)
            .features("journal_dev")
            .unwrap()
            .block_bytes(block_bytes)
            .label("log")
            .overwrite(true);
        let made = options.make(&a).unwrap();
        assert_eq!(
            made.journal_blocks,
            (mib as u64) << 20 >> block_bytes.ilog2()
        );
        let _ = fs::remove_file(&b);
        theirs(&b, (mib as u64) << 20, &words);
        let what = format!("{fs_type}, {mib} MiB, {block_bytes}");
        let (ours, theirs) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
        if fs_type == "ext2" {
            assert!(ours == theirs, "{what}");
            continue;
        }
        // The checksum covers the kilobytes written.
        assert_same(&a, &b, block_bytes as usize, &what);
        for bytes in [ours, theirs] {
            let sb = Superblock::read(&bytes[SUPERBLOCK_OFFSET as usize..][..SUPERBLOCK_BYTES]);
            sb.unwrap().verify_checksum().unwrap();
        }
    }
}

/// The volume and the journal, beside those of mke2fs, which takes block devices only.
#[test]
fn volumes_with_a_journal_outside_have_the_bytes_of_mke2fs() {
    if !e2fs::is_there() || !kernel::may_use_loops() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (fs_type, features) in [("ext4", ""), ("ext3", ""), ("ext4", "quota,inline_data")] {
        let journals = [path("our journal"), path("their journal")];
        for journal in &journals {
            let mut device = options(16 << 20);
            device.features("journal_dev").unwrap().block_bytes(4096);
            device.overwrite(true).make(journal).unwrap();
        }
        let Some(device) = kernel::Loop::new(&journals[1], &[]) else {
            return;
        };
        let words = format!("device={}", device.node());
        let mut all = vec!["-t", fs_type, "-b", "4096", "-J", &words];
        all.extend(
            ["-O", features]
                .into_iter()
                .filter(|_| !features.is_empty()),
        );
        let (a, b) = (path("ours"), path("theirs"));
        theirs(&b, 64 << 20, &all);
        fs::File::open(device.node()).unwrap().sync_all().unwrap();
        let mut ours = options(64 << 20);
        ours.fs_type(fs_type).block_bytes(4096).overwrite(true);
        if !features.is_empty() {
            ours.features(features).unwrap();
        }
        let place = format!("device={}", journals[0].display());
        ours.journal_options(&place).unwrap();
        let planned = ours.plan_for(&a).unwrap();
        let made = ours.make(&a).unwrap();
        assert_eq!(planned.features, made.features);
        assert!(made.features.contains(&"has_journal".to_owned()));
        let mut check = e2fs::tool("e2fsck");
        check.args(["-fn", "-j"]).arg(&journals[0]).arg(&a);
        program::run(&mut check, e2fs::LIMIT).good("e2fsck");
        // The number of the block device.
        let number_at = 1024 + 0xE4;
        let number = fs::read(&b).unwrap()[number_at..number_at + 4].to_vec();
        assert_ne!(number, [0; 4]);
        let file = fs::File::options().write(true).open(&b).unwrap();
        for copy in [0, 32768 * 4096_u64] {
            let end = file.metadata().unwrap().len();
            let at = copy + if copy == 0 { number_at as u64 } else { 0xE4 };
            if at < end {
                file.write_all_at(&[0; 4], at).unwrap();
            }
        }
        assert_same(&a, &b, 4096, &format!("{fs_type} {features}"));
        let [ours, theirs] = journals.map(|journal| fs::read(journal).unwrap());
        assert!(ours == theirs, "{fs_type} {features}: the journals");
    }
}

#[test]
fn a_journal_outside_belongs_to_one_volume() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let journal = path("journal");
    let with_journal = |block_bytes: u32, name: &str| {
        let mut ours = options(32 << 20);
        ours.block_bytes(block_bytes);
        ours.journal_options(&format!("device={}", journal.display()))
            .unwrap();
        ours.make(path(name)).map(drop)
    };
    let said = |result: throughline_make::Result<()>, words: &str| {
        let error = result.expect_err(words).to_string();
        assert!(error.contains(words), "{error}: {words}");
    };
    said(with_journal(1024, "a"), "journal");
    fs::write(&journal, vec![0; 4 << 20]).unwrap();
    said(with_journal(1024, "a"), "holds no journal");
    let mut device = options(4 << 20);
    device.features("journal_dev").unwrap().block_bytes(1024);
    device.make(&journal).unwrap();
    said(with_journal(4096, "a"), "another size");
    assert!(!path("a").exists(), "what fails makes nothing");
    with_journal(1024, "a").unwrap();
    let before = fs::read(&journal).unwrap();
    said(with_journal(1024, "b"), "is or was the journal of a volume");
    assert_eq!(fs::read(&journal).unwrap(), before);
    let mut both = options(4 << 20);
    both.features("journal_dev,extent").unwrap();
    said(both.make(path("c")).map(drop), "no other features");
    let mut small = options(1000 << 10);
    small.features("journal_dev").unwrap();
    said(small.make(path("c")).map(drop), "1024");
    assert!(!path("c").exists());
}
