//! Devices in memory: loading from bytes, and reading back.

use std::sync::Arc;

use throughline_device::{BlockDevice, MemoryDevice, Op, Segment, scope};

const PIECE: usize = 64 << 10;

/// A device with this content. Zeros take no memory.
pub(crate) fn load(bytes: &[u8]) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                let at = (index * PIECE) as u64;
                scope.submit(0, Op::Write, at, [Segment::Write(piece)], false);
                scope.reap(1, &mut done);
            }
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    Arc::new(device)
}

/// The whole content of a device.
pub(crate) fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
            let at = (index * PIECE) as u64;
            scope.submit(0, Op::Read, at, [Segment::Read(piece)], false);
            scope.reap(1, &mut done);
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    bytes
}
