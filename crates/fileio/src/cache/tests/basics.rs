use std::sync::Arc;

use throughline_device::{MemoryDevice, Op};
use throughline_testing::{Fault, FaultDevice};

use crate::cache::Backing;
use crate::cache::testing::{STALE, Volume};
use crate::cache::tests::{finish, pattern};
use crate::error::{Error, Reason};
use crate::mapper::{Map, MappedExtent, Target};

const MIB: u64 = 1 << 20;

#[test]
fn written_data_is_read_before_and_after_write_back() {
    for block in [1024, 4096, 65536] {
        let volume = Volume::new(block, 16 * MIB / block, 8 * MIB);
        let file = volume.file();
        let data = pattern(1, 0, 3_000_001);
        assert_eq!(file.write(777, &data).unwrap(), data.len());
        assert_eq!(file.space().size(), 777 + data.len() as u64);
        let mut buf = vec![0; data.len()];
        assert_eq!(file.space().read_cached(777, &mut buf), Some(data.len()));
        let pieces = crate::cache::cached_pieces(file.space(), 777, data.len() as u64);
        let mut lent = Vec::new();
        let mut lengths = Vec::new();
        let count = crate::cache::lend_cached(file.space(), 777, data.len() as u64, &mut |bytes| {
            lent.extend_from_slice(bytes);
            lengths.push(bytes.len());
            true
        });
        assert_eq!((count, pieces), (Some(data.len()), Some(lengths)));
        assert_eq!(lent, data);
        assert_eq!(
            crate::cache::lend_cached(file.space(), 777, 5, &mut |_| false),
            None
        );
        assert!(buf == data);
        assert_eq!(file.read(0, 777).unwrap(), vec![0; 777]);
        file.flush().unwrap();
        assert_eq!(file.on_device()[777..], data);
        file.space().drop_clean(0..u64::MAX);
        assert!(file.space().is_empty());
        assert_eq!(file.space().read_cached(777, &mut buf), None);
        assert!(file.read(777, data.len() + 9).unwrap() == data);
        assert_eq!(file.space().read_cached(777, &mut buf), Some(data.len()));
        finish(&volume, vec![file]);
    }
}

#[test]
fn there_is_nothing_past_the_end() {
    let volume = Volume::new(4096, 100, 4 * MIB);
    let file = volume.file();
    let mut buf = [0; 10];
    assert_eq!(file.space().read_cached(0, &mut buf), Some(0));
    file.write(0, b"abc").unwrap();
    assert_eq!(file.space().read_cached(3, &mut buf), Some(0));
    assert_eq!(file.space().read_cached(u64::MAX - 3, &mut buf), Some(0));
    assert_eq!(file.space().read_cached(1, &mut buf), Some(2));
    assert_eq!(file.read(u64::MAX - 3, 10).unwrap(), b"");
    let too_far =
        crate::buffered::write(&file.host(), u64::MAX - 2, &[std::io::IoSlice::new(b"abc")]);
    assert!(matches!(too_far, Err(Error::Caller(Reason::TooLarge))));
    finish(&volume, vec![file]);
}

#[test]
fn a_small_write_keeps_the_rest_of_its_block() {
    let volume = Volume::new(4096, 100, 4 * MIB);
    let file = volume.file();
    let mut expected = pattern(2, 0, 40_000);
    file.write(0, &expected).unwrap();
    file.flush().unwrap();
    file.space().drop_clean(0..u64::MAX);
    file.write(5000, b"hello").unwrap();
    expected[5000..5005].copy_from_slice(b"hello");
    // Only its own block had to be read.
    assert_eq!(file.space().cached_bytes(), 4096);
    assert_eq!(file.read(0, 40_000).unwrap(), expected);
    file.flush().unwrap();
    assert_eq!(file.on_device(), expected);
    finish(&volume, vec![file]);
}

#[test]
fn device_contents_past_the_end_are_never_exposed() {
    for block in [1024, 4096, 65536] {
        let volume = Volume::new(block, 100, 4 * MIB);
        let file = volume.file();
        file.write(0, &[7; 100]).unwrap();
        file.flush().unwrap();
        // Stale bytes past the end, as a failed direct write may leave them.
        let Target::Data { device_offset } = file.map(0, block).unwrap().target else {
            panic!("it is on the device");
        };
        file.space().drop_clean(0..u64::MAX);
        let mut garbage = vec![STALE; block as usize];
        garbage[..100].fill(7);
        volume
            .disk
            .write_at(device_offset, &garbage, false)
            .unwrap();
        file.write(3 * block + 1, b"x").unwrap();
        let mut expected = vec![0; 3 * block as usize + 2];
        expected[..100].fill(7);
        expected[3 * block as usize + 1] = b'x';
        assert_eq!(file.read(0, expected.len() + 10).unwrap(), expected);
        file.flush().unwrap();
        assert_eq!(file.on_device(), expected);
        finish(&volume, vec![file]);
    }
}

#[test]
fn holes_and_unwritten_blocks_read_as_zero() {
    let volume = Volume::new(4096, 200, 4 * MIB);
    let file = volume.file();
    file.preallocate(0..40_960);
    file.truncate(100_000);
    assert_eq!(file.read(0, 100_000).unwrap(), vec![0; 100_000]);
    file.write(10_000, b"x").unwrap();
    file.write(90_000, b"y").unwrap();
    let mut expected = vec![0; 100_000];
    expected[10_000] = b'x';
    expected[90_000] = b'y';
    assert_eq!(file.read(0, 100_000).unwrap(), expected);
    file.flush().unwrap();
    assert_eq!(file.on_device(), expected);
    assert_eq!(file.mapped(), 11, "only the written hole is allocated");
    finish(&volume, vec![file]);
}

#[test]
fn a_full_volume_fails_the_write() {
    let volume = Volume::new(4096, 10, 4 * MIB);
    let file = volume.file();
    assert_eq!(file.write(0, &[1; 8 * 4096]).unwrap(), 8 * 4096);
    // The write stops where space runs out, and reserves nothing for the rest.
    assert_eq!(file.write(8 * 4096, &[5; 3 * 4096]).unwrap(), 2 * 4096);
    let refused = file.write(20 * 4096, &[2; 3 * 4096]);
    assert!(
        matches!(refused, Err(Error::Caller(Reason::NoSpace))),
        "{refused:?}"
    );
    assert_eq!(file.space().size(), 10 * 4096);
    assert_eq!(volume.promised(), 10);
    // Overwriting dirty or allocated blocks needs no space.
    file.write(0, &[3; 4096]).unwrap();
    file.flush().unwrap();
    file.write(4096, &[4; 4096]).unwrap();
    file.flush().unwrap();
    assert_eq!(volume.free(), 0);
    finish(&volume, vec![file]);
}

#[test]
fn discarded_blocks_return_their_reservations() {
    let volume = Volume::new(4096, 100, 4 * MIB);
    let file = volume.file();
    // Not flushed: the result does not depend on whether the flusher has run.
    file.write(0, &[1; 40_960]).unwrap();
    file.punch(4096..8192);
    file.truncate(10_000);
    let mut expected = vec![1; 10_000];
    expected[4096..8192].fill(0);
    assert_eq!(file.read(0, 20_000).unwrap(), expected);
    file.truncate(20_000);
    expected.resize(20_000, 0);
    assert_eq!(file.read(0, 20_000).unwrap(), expected);
    file.flush().unwrap();
    finish(&volume, vec![file]);
}

#[test]
fn a_dropped_file_leaves_nothing_behind() {
    let volume = Volume::new(4096, 1000, 8 * MIB);
    let file = volume.file();
    file.write(0, &[1; 1_000_000]).unwrap();
    file.flush().unwrap();
    assert_eq!(file.read(0, 1_000_000).unwrap(), vec![1; 1_000_000]);
    finish(&volume, vec![file]);
}

#[test]
fn impossible_mappings_are_errors() {
    let volume = Volume::new(4096, 100, 4 * MIB);
    let file = volume.file();
    file.write(0, &[1; 40_960]).unwrap();
    file.flush().unwrap();
    file.space().drop_clean(0..u64::MAX);
    let data = |device_offset| Target::Data { device_offset };
    let invalid = [
        (0, 0, Target::Hole),
        (8192, 4096, Target::Hole),
        (0, 4096, data(u64::MAX - 100)),
        (0, 100, data(0)),
        (u64::MAX - 5, 100, data(0)),
    ];
    for (file_offset, len, target) in invalid {
        file.lie(Some(MappedExtent {
            file_offset,
            len,
            target,
        }));
        let read = file.read(0, 4096);
        assert!(
            matches!(read, Err(Error::Corrupt(_) | Error::Device(_))),
            "{target:?}: {:?}",
            read.map(|bytes| bytes.len())
        );
        let written = file.write(5, b"x");
        assert!(written.is_err(), "{target:?}: {written:?}");
    }
    file.lie(None);
    assert_eq!(file.read(0, 4096).unwrap(), vec![1; 4096]);
    finish(&volume, vec![file]);
}

#[test]
fn a_read_error_is_returned_and_leaves_nothing_behind() {
    let device = Arc::new(MemoryDevice::new(2 << 20));
    let faulty = Arc::new(FaultDevice::counting(device).only(&[Op::Read]));
    let volume = Volume::over(Arc::clone(&faulty) as _, 4096, 4 * MIB);
    let file = volume.file();
    let data = pattern(4, 0, 400_000);
    // In two calls, so that a folio ends there.
    file.write(0, &data[..40_960]).unwrap();
    file.write(40_960, &data[40_960..]).unwrap();
    file.flush().unwrap();
    file.space().drop_clean(40_960..u64::MAX);
    faulty.set_fault(Fault::From(faulty.requests()));
    assert!(file.read(200_000, 100).is_err());
    assert!(file.write(200_001, b"x").is_err());
    // Cached bytes are still returned, and a call returns what it read before the error.
    assert_eq!(file.read(0, 400_000).unwrap(), data[..40_960]);
    assert_eq!(file.space().dirty_bytes(), 0);
    faulty.set_fault(Fault::Never);
    assert!(file.read(0, 400_000).unwrap() == data);
    finish(&volume, vec![file]);
}
