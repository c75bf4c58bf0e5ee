//! Opening: refusals and their messages, and what a session leaves in the superblock.

use throughline_extfmt::features::Incompat;
use throughline_extfmt::superblock::State;
use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_testkit::tier::pick;

use crate::testing::{Image, SHAPES};
use crate::{Error, NotExt, OpenOptions, Reason, Result};

fn writing() -> OpenOptions {
    OpenOptions {
        write: true,
        ..OpenOptions::default()
    }
}

/// The text of an `Unsupported` error.
fn unsupported<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Unsupported(text)) => text,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was allowed"),
    }
}

/// The text of a `Corrupt` error.
fn corrupt<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Corrupt(corrupt)) => corrupt.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was allowed"),
    }
}

#[test]
fn every_shape_opens_and_closes_clean() {
    for (name, size, args) in SHAPES.iter().step_by(pick(2, 1, 1)) {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let before = std::fs::read(image.path()).expect("the image");
        image
            .try_open(&OpenOptions::default())
            .expect(name)
            .close()
            .expect(name);
        assert!(
            std::fs::read(image.path()).expect("the image") == before,
            "{name}: reading changed the image"
        );
        let fs = image.open();
        let in_use = (
            image.header("Filesystem state"),
            image
                .header("Filesystem features")
                .contains("needs_recovery"),
        );
        let journaled = fs.has_log();
        let expected = if journaled { "clean" } else { "not clean" };
        assert_eq!(in_use, (expected.to_owned(), journaled), "{name}");
        fs.close().expect(name);
        assert_eq!(image.header("Filesystem state"), "clean", "{name}");
        let features = image.header("Filesystem features");
        assert!(!features.contains("needs_recovery"), "{name}: {features}");
        assert_eq!(image.header("Mount count"), "1", "{name}");
        image.check(name);
    }
}

#[test]
fn unknown_features_are_named() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    image.edit_super(|sb| {
        sb.s_feature_ro_compat
            .set(sb.s_feature_ro_compat.get() | 1 << 27)
    });
    let fs = image.try_open(&writing()).expect("reading is allowed");
    assert!(fs.is_read_only());
    assert!(
        fs.read_only_reason()
            .is_some_and(|why| why.contains("FEATURE_R27")),
        "{:?}",
        fs.read_only_reason()
    );
    assert!(unsupported(fs.begin(1)).contains("FEATURE_R27"));
    drop(fs);
    image.edit_super(|sb| {
        sb.s_feature_incompat
            .set(sb.s_feature_incompat.get() | 1 << 29)
    });
    assert!(unsupported(image.try_open(&OpenOptions::default())).contains("FEATURE_I29"));
}

#[test]
fn a_truncated_or_empty_image_is_refused() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(image.path())
        .expect("the image");
    file.set_len(9 << 20).expect("truncated");
    assert!(corrupt(image.try_open(&OpenOptions::default())).contains("truncated"));
    for (bytes, why) in [
        (1500, NotExt::TooShort { bytes: 1500 }),
        (0, NotExt::TooShort { bytes: 0 }),
        (1 << 20, NotExt::Magic { found: 0 }),
    ] {
        file.set_len(bytes).expect("truncated, or grown with zeros");
        let opened = image.try_open(&OpenOptions::default());
        assert!(
            matches!(&opened, Err(Error::Caller(Reason::NotExt(found))) if *found == why),
            "{why}: {:?}",
            opened.err()
        );
    }
}

#[test]
fn a_journal_device_is_no_file_system() {
    let Some(image) = Image::make("16M", &["-O", "journal_dev"]) else {
        return;
    };
    assert!(unsupported(image.try_open(&OpenOptions::default())).contains("external journal"));
}

#[test]
fn an_external_journal_forbids_writing() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    image.edit_super(|sb| {
        sb.s_journal_inum.set(0);
        sb.s_journal_dev.set(0x801);
    });
    image
        .try_open(&OpenOptions::default())
        .expect("reading is allowed");
    assert!(unsupported(image.try_open(&writing())).contains("external journal"));
    image.edit_super(|sb| {
        sb.s_feature_incompat
            .set((sb.incompat() | Incompat::RECOVER).bits())
    });
    assert!(unsupported(image.try_open(&OpenOptions::default())).contains("external journal"));
}

#[test]
fn a_journal_that_needs_recovery_is_read_over_its_replay_and_recovered_for_writing() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-L", "before"]) else {
        return;
    };
    // A transaction that renames the volume: the superblock as the journal must leave it.
    let mut block = vec![0; 1024];
    {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(image.path()).expect("the image");
        file.read_exact_at(&mut block, 1024)
            .expect("the superblock");
    }
    let mut sb = throughline_extfmt::Superblock::read(&block).expect("a superblock");
    sb.s_volume_name[..5].copy_from_slice(b"after");
    sb.s_volume_name[5..].fill(0);
    sb.s_feature_incompat
        .set((sb.incompat() | Incompat::RECOVER).bits());
    sb.update_checksum();
    let changed = image.path().with_extension("block");
    std::fs::write(&changed, zerocopy::IntoBytes::as_bytes(&sb)).expect("written");
    image.debugfs_write_all(&[
        "journal_open",
        &format!("journal_write -b 1 {}", changed.display()),
        "journal_close",
    ]);
    let before = std::fs::read(image.path()).expect("the image");
    let label = |options: &OpenOptions| {
        let fs = image.try_open(options).expect("it opens");
        let label = fs.statfs().expect("statfs").label;
        fs.close().expect("close");
        label
    };
    assert_eq!(label(&OpenOptions::default()), b"after");
    let as_it_lies = OpenOptions {
        no_replay: true,
        ..OpenOptions::default()
    };
    assert_eq!(label(&as_it_lies), b"before");
    assert!(
        std::fs::read(image.path()).expect("the image") == before,
        "reading changed the image"
    );
    let refused = image.try_open(&OpenOptions {
        no_replay: true,
        ..writing()
    });
    assert!(matches!(refused, Err(Error::Caller(Reason::Invalid(_)))));
    // The same journal, with a superblock that does not ask for recovery.
    let forgetful = image.copy();
    forgetful.edit_super(|sb| {
        sb.s_feature_incompat
            .set((sb.incompat() - Incompat::RECOVER).bits())
    });
    assert!(unsupported(forgetful.try_open(&writing())).contains("journal holds transactions"));
    let fs = image.try_open(&writing()).expect("it is recovered");
    let replayed = fs.recovery().replayed.clone().expect("it was needed");
    assert_eq!((replayed.transactions, replayed.blocks), (1, 1));
    assert_eq!(fs.statfs().expect("statfs").label, b"after");
    fs.close().expect("close");
    image.check("recovered");
    assert!(label(&as_it_lies) == b"after");
    let fs = image.try_open(&writing()).expect("it opens");
    assert!(fs.recovery().is_empty(), "{:?}", fs.recovery());
}

/// If free space cannot be counted, the old counts must not be written to the superblock as valid.
#[test]
fn a_volume_that_cannot_be_counted_stays_to_be_recovered() {
    let Some(image) = Image::make("40M", &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"]) else {
        return;
    };
    // As after a crash: nothing is closed.
    let session = std::mem::ManuallyDrop::new(image.open());
    session.sync().expect("sync");
    let mut bytes = std::fs::read(image.path()).expect("the image");
    // Descriptor of the last of five groups (64 bytes, with checksum): its free blocks.
    bytes[2048 + 4 * 64 + 12] ^= 0x55;
    std::fs::write(image.path(), &bytes).expect("written");
    let why = corrupt(image.try_open(&writing()));
    assert!(why.contains("group 4"), "{why}");
    let after = std::fs::read(image.path()).expect("the image");
    let sb = throughline_extfmt::Superblock::read(&after[1024..]).expect("a superblock");
    assert!(sb.incompat().contains(Incompat::RECOVER), "closed as clean");
}

#[test]
fn an_unclean_volume_is_written_and_stays_unclean() {
    let Some(image) = Image::make("16M", &["-t", "ext2"]) else {
        return;
    };
    let fs = image.open();
    // As after a crash: nothing is closed.
    let session = std::mem::ManuallyDrop::new(fs);
    session.sync().expect("sync");
    let again = |options: &OpenOptions| image.try_open(options).map(|fs| fs.is_read_only());
    assert_eq!(again(&OpenOptions::default()).ok(), Some(true));
    let opened = image.try_open(&writing()).expect("as the kernel does");
    assert!(opened.recovery().unchecked && !opened.is_read_only());
    opened.close().expect("close");
    // Opened unclean, it must be left unclean.
    assert_eq!(image.header("Filesystem state"), "not clean");
    image.edit_super(|sb| sb.set_state(State::VALID | State::ERROR));
    assert!(unsupported(again(&writing())).contains("errors"));
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    let fs = image.try_open(&OpenOptions::default()).expect("open");
    assert!(fs.is_read_only() && fs.read_only_reason().is_none());
    assert!(matches!(fs.begin(1), Err(Error::Caller(Reason::ReadOnly))));
    fs.sync().expect("nothing to do");
}

#[test]
fn a_terabyte_opens_with_little_memory() {
    let Some(image) = Image::make(
        "1T",
        &["-t", "ext4", "-E", "lazy_itable_init=1", "-J", "size=4"],
    ) else {
        return;
    };
    let fs = image.open();
    fs.inode(throughline_extfmt::InodeNumber::ROOT)
        .expect("root");
    fs.statfs().expect("statfs");
    let resident = fs.journal.status().resident_bytes;
    assert!(resident < 1 << 20, "{resident} bytes of metadata read");
    fs.close().expect("close");
}

#[test]
fn two_machines_never_write_one_volume() {
    let mmp = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "mmp",
        "-E",
        "mmp_update_interval=1",
    ];
    let Some(image) = Image::make("16M", &mmp) else {
        return;
    };
    let first = image.open();
    let second = image.try_open(&OpenOptions {
        allow_unclean: true,
        ..writing()
    });
    match second {
        Err(Error::Caller(Reason::Busy(who))) => assert!(who.contains("in use on"), "{who}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened twice"),
    }
    first.close().expect("still claimed by the first");
    image.check("mmp");
    image.open().close().expect("the claim was released");
    // Another machine takes over: the first must notice and stop.
    let robbed = image.open();
    let disk = &robbed.disk;
    let at = robbed.superblock().s_mmp_block.get() * 1024;
    let mut block = vec![0; 1024];
    disk.read_at(at, &mut block).expect("the block");
    let mut mmp =
        throughline_extfmt::mmp::MmpBlock::read(&block, robbed.geo.csum_seed).expect("a block");
    mmp.mmp_seq.set(77);
    mmp.update_checksum(robbed.geo.csum_seed);
    disk.write_at(at, zerocopy::IntoBytes::as_bytes(&mmp), false)
        .expect("written");
    let error = loop {
        // The claim is renewed every second; wait for the thread, however long that takes.
        match robbed.sync() {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Caller(Reason::Busy(_))), "{error}");
    assert!(robbed.close().is_err());
}

/// Opens a damaged volume and exercises this half of the crate. Errors are fine, panics are not.
fn use_damaged(disk: std::sync::Arc<throughline_block::Disk>) -> Result<()> {
    let fs = crate::Fs::open(
        disk,
        &OpenOptions {
            allow_unclean: true,
            ..writing()
        },
    )?;
    fs.statfs()?;
    let root = fs.inode(InodeNumber::ROOT)?;
    for ino in 1..40 {
        let _ = fs.inode(InodeNumber(ino));
    }
    let _ = fs.check_counts();
    if let Ok(run) = fs.claim(FsBlock(4000), 300) {
        let mut h = fs.begin(4)?;
        fs.confirm(&mut h, run)?;
        fs.free(&mut h, run.start, run.len.into())?;
        h.stop()?;
    }
    let mut h = fs.begin(3)?;
    let inode = fs.new_inode(&mut h, &root, 0o100644, 0, 0)?;
    fs.store(&mut h, &inode)?;
    h.stop()?;
    fs.close()
}

#[test]
fn damaged_volumes_give_errors() {
    for args in [
        &["-t", "ext2", "-b", "1024"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "^metadata_csum"],
    ] {
        let Some(image) = Image::make("16M", args) else {
            continue;
        };
        let sound = std::fs::read(image.path()).expect("the image");
        for seed in 0..pick(40, 150, 150) {
            let mut rng = crate::testing::Rng::new(seed);
            let mut damaged = sound.clone();
            for _ in 0..=rng.below(12) {
                // The superblock, the descriptors after it, or anywhere in the first metadata.
                let end = [2048, 8192, 400 << 10][rng.below(3) as usize];
                let at = 1024 + rng.below(end - 1024) as usize;
                damaged[at] = [
                    0,
                    0xFF,
                    rng.below(256) as u8,
                    damaged[at] ^ 1 << rng.below(8),
                ][rng.below(4) as usize];
            }
            if let Ok(mut sb) = throughline_extfmt::Superblock::read(&damaged[1024..]) {
                sb.update_checksum();
                damaged[1024..2048].copy_from_slice(zerocopy::IntoBytes::as_bytes(&sb));
            }
            let device = throughline_device::MemoryDevice::new(damaged.len() as u64);
            let disk = throughline_block::Disk::new(std::sync::Arc::new(device)).expect("a disk");
            disk.write_at(0, &damaged, false).expect("written");
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| use_damaged(disk.into())));
            assert!(outcome.is_ok(), "panic with seed {seed} of {args:?}");
        }
    }
}
