//! A device whose n-th request fails: the error is reported, data synced before stays, and `e2fsck -fy` can
//! repair the rest.

use std::io::IoSlice;
use std::sync::Arc;

use throughline_device::BlockDevice;
use throughline_ext::{Fallocate, Fs, Result};
use throughline_testing::{Fault, FaultDevice};

use crate::mapping::support::{Image, create, open};

const UNIT: usize = 1024;

/// The contents written before anything fails. (The volume is large enough to have a second superblock, in
/// case the first is torn.)
fn kept() -> Vec<u8> {
    (0..300 * UNIT).map(|i| (i / 7) as u8 | 1).collect()
}

/// The changes that may fail. Returns the contents that `changed` has if all of them succeeded and reached
/// the disk.
fn script(fs: &Fs) -> Result<Vec<u8>> {
    let root = fs.root()?;
    let inode = fs.lookup(&root, b"changed")?;
    let mut model = vec![0; 200 * UNIT];
    for i in (0..200).step_by(2) {
        fs.write_at(
            &inode,
            (i * UNIT) as u64,
            &[IoSlice::new(&[i as u8 + 1; UNIT])],
        )?;
        model[i * UNIT..][..UNIT].fill(i as u8 + 1);
    }
    model.truncate(199 * UNIT);
    fs.fallocate(
        &inode,
        Fallocate::PunchHole,
        50 * UNIT as u64 + 100,
        20 * UNIT as u64,
    )?;
    model[50 * UNIT + 100..70 * UNIT + 100].fill(0);
    fs.sync_file(&inode)?;
    if fs
        .fallocate(&inode, Fallocate::Collapse, 0, 10 * UNIT as u64)
        .is_ok()
    {
        model.drain(..10 * UNIT);
    }
    fs.truncate(&inode, 120 * UNIT as u64 + 13)?;
    model.truncate(120 * UNIT + 13);
    fs.write_at(&inode, 130 * UNIT as u64, &[IoSlice::new(b"end")])?;
    model.resize(130 * UNIT, 0);
    model.extend_from_slice(b"end");
    fs.sync_file(&inode)?;
    Ok(model)
}

fn prepared(args: &[&str]) -> Option<Image> {
    let image = Image::make("9M", args)?;
    let fs = image.open();
    let inode = create(&fs, "kept");
    fs.write_at(&inode, 0, &[IoSlice::new(&kept())])
        .expect("a write");
    create(&fs, "changed");
    fs.close().expect("closing");
    Some(image)
}

#[test]
fn every_request_may_fail() {
    let shapes: [&[&str]; 2] = [
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-N", "32"],
        &["-t", "ext2", "-b", "1024", "-N", "32"],
    ];
    for args in shapes {
        let Some(image) = prepared(args) else {
            continue;
        };
        let counting = Arc::new(FaultDevice::counting(image.copy().device()));
        let fs = open(Arc::clone(&counting) as Arc<dyn BlockDevice>).expect("the volume opens");
        script(&fs).expect("nothing fails");
        drop(fs);
        let requests = counting.requests();
        assert!(requests > 100, "{requests}");
        let mut succeeded = 0;
        let step = throughline_testkit::tier::pick(401, 37, 37);
        // All of the first and last requests, and a sample of the others.
        for n in (0..requests).filter(|n| *n < 8 || *n + 24 > requests || n % step == 0) {
            for fault in [Fault::Once(n), Fault::From(n), Fault::Torn(n)] {
                let what = format!("{args:?}: {fault:?}");
                let copy = image.copy();
                let device = FaultDevice::new(copy.device(), fault).seeded(n);
                let result = open(Arc::new(device)).and_then(|fs| {
                    let result = script(&fs);
                    drop(fs);
                    result
                });
                copy.repair(&what);
                assert!(
                    copy.dump("kept") == kept(),
                    "{what}: an untouched file changed"
                );
                if let Ok(model) = result {
                    succeeded += 1;
                    assert!(
                        copy.dump("changed") == model,
                        "{what}: success was reported, but the data differs"
                    );
                }
            }
        }
        assert!(succeeded > 0, "{args:?}: no fault was survived");
    }
}
