//! Folded names beside e2fsprogs, through the hashes that `debugfs` computes of them: all characters, random
//! sequences of those that matter, and malformed names.
#![forbid(unsafe_code)]

use std::os::unix::ffi::OsStrExt;

use throughline_extfmt::casefold::CaseFolding;
use throughline_extfmt::hash::HashVersion;
use throughline_testkit::{e2fs, program};

const FOLDING: CaseFolding = CaseFolding { strict: false };

/// Compares the hash of each name, folded here and by `debugfs`. Names have no ASCII but letters.
fn compare(what: &str, names: &[Vec<u8>]) {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let image = dir.path().join("image");
    if !e2fs::mke2fs_if_supported(&image, "4M", &["-t", "ext4", "-O", "casefold"]) {
        return;
    }
    let requests = dir.path().join("requests");
    let mut text = Vec::new();
    for name in names {
        text.extend_from_slice(b"dx_hash -c -e utf8 -h half_md4 ");
        text.extend_from_slice(name);
        text.push(b'\n');
    }
    std::fs::write(&requests, text).expect("written");
    let mut debugfs = e2fs::tool("debugfs");
    debugfs.arg("-f").arg(&requests).arg(&image);
    let ran = program::run(&mut debugfs, e2fs::LIMIT);
    let mut hashes = ran.stdout.split("debugfs: dx_hash").skip(1);
    let mut refused = 0;
    for name in names {
        let line = hashes.next().expect("an answer");
        let shown = std::ffi::OsStr::from_bytes(name);
        let theirs = line.rsplit_once(" is 0x").map(|(_, hash)| hash.trim());
        let ours = FOLDING.fold(name).map(|folded| {
            let hash = HashVersion::HalfMd4.hash(&folded, [0; 4]).expect("a hash");
            format!("{:x} (minor 0x{:x})", hash.major, hash.minor)
        });
        if FOLDING.allows(name) {
            assert_eq!(ours.as_deref(), theirs, "{what}: {shown:?}");
        } else {
            assert!(ours.is_none() && theirs.is_some(), "{what}: {shown:?}");
            refused += 1;
        }
    }
    assert!(
        refused < names.len() / 10,
        "{what}: {refused} names are not known"
    );
}

/// The next of a sequence of random numbers (xorshift).
fn random(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % below as u64) as usize
}

#[test]
fn every_character_is_folded_as_by_e2fsprogs() {
    let names: Vec<_> = ('\u{80}'..=char::MAX)
        .step_by(throughline_testkit::tier::pick(7, 1, 1))
        .map(|c| format!("x{c}Y").into_bytes())
        .collect();
    compare("one character", &names);
}

#[test]
fn sequences_are_folded_as_by_e2fsprogs() {
    // Combining, ignorable, composed, of one case, later than Unicode 12.1, Hangul, malformed.
    let pool: Vec<Vec<u8>> = ('\u{300}'..'\u{370}')
        .chain('\u{C0}'..'\u{250}')
        .chain('\u{1F00}'..'\u{1FFF}')
        .chain('\u{591}'..'\u{5C8}')
        .chain('\u{200B}'..'\u{2010}')
        .chain("\u{34F}\u{AD}\u{180F}\u{180E}\u{E0001}\u{E0100}\u{FFF1}\u{2065}".chars())
        .chain("\u{378}\u{8D1}\u{1AE3}\u{A7C7}\u{10EFF}abcABC각가\u{1100}\u{1161}\u{11A8}".chars())
        .map(|c| c.to_string().into_bytes())
        .chain([b"\x80", b"\xBF", b"\x91"].map(|bytes| bytes.to_vec()))
        .collect();
    let bad = [
        &b"\xED\xA0\x80"[..],
        b"\xC0\x80",
        b"\xF4\x90\x80\x80",
        b"\xE2\x82",
        b"\xFF",
    ];
    let mut state = 0xCA5E_F01D_u64;
    let names: Vec<_> = (0..100_000)
        .map(|at| {
            let mut name = b"x".to_vec();
            for _ in 0..1 + random(&mut state, 8) {
                name.extend_from_slice(&pool[random(&mut state, pool.len())]);
            }
            if at % 20 == 0 {
                name.extend_from_slice(bad[random(&mut state, bad.len())]);
                name.push(b'Z');
            }
            name
        })
        .collect();
    compare("a sequence, seed 0xCA5EF01D", &names);
}
