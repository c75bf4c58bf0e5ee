//! Edited journals: with fewer blocks than any tool makes, and with any sequence number.

use std::path::Path;

use throughline_extfmt::Superblock;
use throughline_extfmt::jbd2::JournalSuperblock;
use throughline_testing::{Image, PowerDevice};
use zerocopy::IntoBytes;

use crate::oracle::image::Scratch;

/// The byte offset of the journal's superblock in an image.
fn find(image: &Image) -> u64 {
    let mut bytes = [0; 1024];
    image.read(1024, &mut bytes);
    let sb = Superblock::read(&bytes).expect("a superblock");
    // The backup of the journal's map: the root of an extent tree, or pointers.
    let words: Vec<u32> = sb.s_jnl_blocks.iter().map(|word| word.get()).collect();
    let extents = words[0] & 0xFFFF == 0xF30A;
    let block = if extents { words[5] } else { words[0] };
    u64::from(block) << (10 + sb.s_log_block_size.get())
}

fn edit(image: &mut Image, change: impl FnOnce(&mut JournalSuperblock)) {
    let at = find(image);
    let mut bytes = [0; 1024];
    image.read(at, &mut bytes);
    let mut sb = JournalSuperblock::read(&bytes).expect("the journal's superblock");
    change(&mut sb);
    sb.update_checksum();
    image.write(at, sb.as_bytes());
}

/// The image in the file `made`, with its journal reduced to `blocks` blocks.
pub(crate) fn with_log(made: &Path, blocks: u32) -> Image {
    let mut image = Image::read_file(made).expect("an image");
    edit(&mut image, |sb| {
        sb.s_maxlen.set(blocks);
        sb.s_num_fc_blks.set(0);
    });
    image
}

/// The image, with this number for its next transaction.
pub(crate) fn with_sequence(mut image: Image, sequence: u32) -> Image {
    edit(&mut image, |sb| sb.s_sequence.set(sequence));
    image
}

/// Checks that `e2fsck -fn` finds nothing, apart from the journal's size, which is too small for it.
pub(crate) fn check(image: &Image, scratch: &Scratch) -> Result<(), String> {
    let mut image = image.clone();
    let mut blocks = 0;
    // The journal is empty, so it is valid again with its original size.
    edit(&mut image, |sb| {
        assert_eq!(sb.s_start.get(), 0, "closed, but the log is not empty");
        blocks = std::mem::replace(&mut sb.s_maxlen, 1024.into()).get();
    });
    let found = scratch.check(&PowerDevice::new(image, 0));
    found.map_err(|what| format!("{what} (a journal of {blocks})"))
}
